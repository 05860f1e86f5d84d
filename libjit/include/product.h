/// The walk of convolutions and matrix products over their tiles.
///
/// The work is cut into *units*: a slab of lines times a block of output channels, of one group of one image. Those of a
/// slab follow each other, of all its groups: they share lines of memory, so that threads had better have different slabs,
/// as they have in the layers before and after. Which units there are follows from the sizes and from what the strategy decided, never from who computes them; so a
/// kernel may be called for any range of units, on any thread, and the bits are the same.
///
/// The walk computes nothing itself: of elements it knows only how large they are.
#ifndef LIBJIT_PRODUCT_H
#define LIBJIT_PRODUCT_H

#include "tile.h"

float libjit_dot_f32(float total, const float *left, const float *right, dim_t count);
double libjit_dot_f64(double total, const double *left, const double *right, dim_t count);
int32_t libjit_dot_i8(int32_t total, const int8_t *left, const int8_t *right, dim_t count);
int32_t libjit_dot_u8(int32_t total, const uint8_t *left, const int8_t *right, dim_t count);

/// Bytes of weights between what is read and what is fetched for the same pass: prefetchers of processors begin anew in
/// every page.
#define FETCH_DISTANCE 8192

/// What the strategy decided: see glowpy/backends/cpu/strategy.
typedef struct {
  dim_t pixels, vectors; ///< of a tile
  dim_t slab;            ///< lines that are computed for one block of channels before the next block
  dim_t fetch;           ///< elements of weights to fetch ahead at each step of the inner loop
} decision_t;

/// One product. One walk serves all products of a network, so nothing here is a constant.
typedef struct {
  const void *input, *weights, *bias, *zeros; ///< bias may be NULL
  dim_t size, sum_size;               ///< bytes of an element of input or weights, and of a sum or bias
  dim_t lanes, dot;                   ///< sums of a vector of a tile, elements of input in a step
  dim_t images, groups;
  dim_t pixels, width;                ///< output pixels of an image, and of a line, which are tiled by themselves
  dim_t channels, depth;              ///< output and input channels of a group
  dim_t block;                        ///< output channels that are packed together
  dim_t in_height, in_width;          ///< of the input
  dim_t image_step, row_step, step;   ///< input, from one image, row, pixel to the next
  dim_t out_width;                    ///< output pixels in a row of the image
  dim_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, top, left;
  bool pointwise;                     ///< every pixel by itself: line and pixel numbers are those of the input
} product_t;

/// What sums without a bias begin with; writing zeros would become a call of memset.
static const double NO_BIAS[MAX_TILE_VECTORS * (LANES / 2 > DOUBLE_LANES ? LANES / 2 : DOUBLE_LANES)];
_Static_assert(sizeof NO_BIAS >= MAX_TILE_VECTORS * LANES * sizeof(float), "a tile of floats begins with so many");
_Static_assert(sizeof NO_BIAS >= MAX_TILE_VECTORS * DOUBLE_LANES * sizeof(double), "a tile of doubles begins with so many");

/// Lanes of the vectors of tiles, out of those of whole ones: half of them where weights are not packed for whole ones.
INLINE dim_t lanes_of(dim_t lanes, dim_t packed) { return HALF_TILES && packed % lanes ? lanes / 2 : lanes; }

INLINE dim_t ceil_div(dim_t a, dim_t b) { return (a + b - 1) / b; }

/// Where element number `index` from `first` on lies.
INLINE const void *element(const product_t *p, const void *first, dim_t index) {
  return (const char *)first + index * p->size;
}

/// Weights of so many channels.
INLINE dim_t weights_of(const product_t *p, dim_t channels) { return p->kernel_h * p->kernel_w * p->depth * channels; }

/// Whether all that the pixels [col, col + pixels) of a row read lies between the left and the right edge.
INLINE bool is_inside(const product_t *p, dim_t col, dim_t pixels) {
  dim_t first = col * p->stride_w - p->left;
  dim_t last = (col + pixels - 1) * p->stride_w - p->left + (p->kernel_w - 1) * p->dilation_w;
  return first >= 0 && last < p->in_width;
}

/// A range of rows of the kernel.
typedef struct {
  dim_t first, last;
} range_t;

/// The rows of a kernel that lie inside an image of `height` rows where its first one lies in `row`.
INLINE range_t rows_inside(dim_t row, dim_t height, dim_t kernel, dim_t dilation) {
  dim_t first = row < 0 ? ceil_div(-row, dilation) : 0;
  dim_t last = row < height ? min_dim(ceil_div(height - row, dilation), kernel) : 0;
  return (range_t){min_dim(first, last), last};
}

/// What a tile of `pixels` pixels from pixel `first` of an image on reads: sets `reach`, and moves `input` and
/// `weights` to where it begins. Returns whether the tile is a regular one.
INLINE bool find_reach(const product_t *p, reach_t *reach, const void **input, const void **weights, dim_t first,
                       dim_t pixels) {
  if (p->pointwise) {
    *input = element(p, *input, first * p->step);
    return true;
  }
  dim_t out_row = first / p->out_width, col = first % p->out_width;
  dim_t row = out_row * p->stride_h - p->top;
  bool one_row = col + pixels <= p->out_width;
  range_t all = {0, p->kernel_h};
  range_t rows = one_row ? rows_inside(row, p->in_height, p->kernel_h, p->dilation_h) : all;
  // Rows outside the image are left out where they are zeros, as those of floats are; words of four are of bytes.
  bool complete = p->dot < 4 || rows.last - rows.first == p->kernel_h;
  if (!complete) rows = all;
  row += rows.first * p->dilation_h;
  reach->tap_rows = rows.last - rows.first;
  *weights = element(p, *weights, rows.first * p->kernel_w * p->depth * p->block);
  if (one_row && complete && is_inside(p, col, pixels)) {
    // Neighbouring taps of a row are neighbours in memory, so they join into one run.
    bool joined = p->depth == p->step && p->dilation_w == 1;
    reach->tap_row_step = p->dilation_h * p->row_step;
    reach->taps = joined ? 1 : p->kernel_w;
    reach->tap_step = p->dilation_w * p->step;
    reach->run = joined ? p->kernel_w * p->depth : p->depth;
    *input = element(p, *input, row * p->row_step + (col * p->stride_w - p->left) * p->step);
    return true;
  }
  reach->tap_row_step = p->row_step;
  reach->taps = p->kernel_w;
  reach->tap_step = p->step;
  reach->run = p->depth;
  reach->row = row;
  reach->col = col * p->stride_w - p->left;
  reach->out_col = col;
  return false;
}

/// Where a unit lies.
typedef struct {
  dim_t image, group, first_line, last_line, channel, valid;
} unit_t;

INLINE dim_t count_lines(const product_t *p) { return ceil_div(p->pixels, p->width); }

INLINE unit_t find_unit(const product_t *p, decision_t decision, dim_t unit) {
  dim_t block = decision.vectors * p->lanes, blocks = ceil_div(p->channels, block);
  dim_t lines = count_lines(p), slabs = ceil_div(lines, decision.slab);
  dim_t channel = unit % blocks * block, rest = unit / blocks, slab = rest / p->groups % slabs;
  return (unit_t){.image = rest / p->groups / slabs,
                  .group = rest % p->groups,
                  .first_line = slab * decision.slab,
                  .last_line = min_dim((slab + 1) * decision.slab, lines),
                  .channel = channel,
                  .valid = min_dim(block, p->channels - channel)};
}

/// Half of a sum, or all of it: what is copied as it stands.
typedef uint32_t __attribute__((may_alias)) word_t;

/// Copies `valid` of `block` sums, and fills the others with zeros.
INLINE void copy_bias(const product_t *p, word_t *to, const word_t *from, dim_t valid, dim_t block) {
  dim_t words = p->sum_size / (dim_t)sizeof(word_t);
  for (dim_t i = 0; i < block * words; i++) to[i] = i < valid * words ? from[i] : 0;
}

/// Hands the finished tiles of one unit to the epilogue. There is room for a tile at `sums`, for a block at `bias`.
INLINE void multiply_unit(const product_t *p, decision_t decision, unit_t unit, void *sums, void *bias,
                          const tiles_t *tiles, epilogue_t epilogue, const void *env) {
  dim_t block = decision.vectors * p->lanes, size = weights_of(p, block), packed_size = weights_of(p, p->block);
  dim_t col = unit.group * p->channels + unit.channel;
  dim_t first_block = unit.group * ceil_div(p->channels, p->block) + unit.channel / p->block;
  const void *block_weights = element(p, p->weights, first_block * packed_size);
  const void *image = element(p, p->input, unit.image * p->image_step + unit.group * p->depth);
  const void *start = NO_BIAS;
  if (p->bias) {
    copy_bias(p, bias, (const word_t *)p->bias + col * p->sum_size / (dim_t)sizeof(word_t), unit.valid, block);
    start = bias;
  }
  bool last = unit.channel + block >= p->channels;
  dim_t vectors = ceil_div(unit.valid, p->lanes), fetched = 0, steps = size / block / p->dot;
  reach_t reach = {.tap_rows = 1,
                   .taps = 1,
                   .run = p->depth,
                   .pixel_step = p->stride_w * p->step,
                   .block_step = packed_size,
                   .zeros = p->zeros,
                   .height = p->in_height,
                   .width = p->in_width,
                   .out_width = p->out_width,
                   .row_stride = p->stride_h,
                   .col_stride = p->stride_w,
                   .dilation_h = p->dilation_h,
                   .dilation_w = p->dilation_w,
                   .left = p->left};
  // Where weights are near, the first block of channels fetches the input of the next tile, which lies after this one's: it is
  // so many short runs that prefetchers of processors, which follow each, begin too late.
  bool fetches_input = LANES > 1 && !decision.fetch && !unit.channel && p->pointwise && p->step == p->depth;
  for (dim_t line = unit.first_line; line < unit.last_line; line++) {
    dim_t end = min_dim((line + 1) * p->width, p->pixels);
    for (dim_t first = line * p->width; first < end; first += decision.pixels) {
      dim_t pixels = min_dim(decision.pixels, end - first);
      const void *input = image, *weights = block_weights;
      bool regular = find_reach(p, &reach, &input, &weights, first, pixels);
      // Weights of a cold network come from memory: spread the fetching of a block over the tiles of the one before.
      // A tile that alone fetches as much as it reads meets weights once: it fetches those that it reads soon.
      bool own = decision.fetch >= block * p->dot, more = own || (!last && fetched < size);
      dim_t distance = own ? min_dim(size, FETCH_DISTANCE / p->size) : size + fetched;
      reach.ahead = more ? element(p, block_weights, distance) : block_weights;
      reach.ahead_step = more ? decision.fetch : 0;
      fetched += steps * decision.fetch;
      if (fetches_input) {
        reach.ahead = element(p, input, decision.pixels * p->step);
        reach.ahead_step = decision.pixels * p->dot;
      }
      bool rest_of_line = pixels < decision.pixels, rest_of_block = vectors < decision.vectors;
      dim_t row = unit.image * p->pixels + first;
      if (tiles->finished && regular && !rest_of_line && unit.valid == block) {
        tiles->finished(env, start, input, weights, &reach, row, col);
        continue;
      }
      tile_t tile = (regular ? tiles->regular : tiles->scattered)[rest_of_line][rest_of_block];
      tile(sums, start, input, weights, &reach, pixels, vectors);
      epilogue(env, sums, vectors * p->lanes, row, col, pixels, unit.valid);
    }
  }
}

#endif
