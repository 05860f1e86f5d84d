/// Convolutions by Winograd's algorithm: fewer multiplications, for sums before and after them. See Lavin and Gray, "Fast
/// Algorithms for Convolutional Neural Networks", and glowpy/backends/cpu/winograd.py, which has the same as matrices.
///
/// It computes floats, which are rounded at each step, and 8-bit integers, whose points are exact in 16 bits: their products are
/// sums modulo 2^32 of what the result is multiplied by (glowpy/backends/cpu/byte_winograd.py). This file reads itself.
///
/// A *patch* of neighbouring pixels of the input gives some neighbouring pixels of the result. It is *spread*: turned into as
/// many other values, its *points*, by a sum along its columns and one along its rows. At each point patches are the rows
/// of a matrix, channels its columns, and the filter is a matrix too: their product is what the tiles of all products compute.
/// What these products give at all points of a patch is *collected*, turned into pixels by sums again.
///
/// A *slab* is some patches that follow each other. All its points, and those of one block of output channels, are to stay
/// in the second-level cache. A unit is a *band*, some slabs, and some blocks of output channels: where a band has several
/// slabs, all of them. Each unit has scratch memory of its own, of which those
/// that are computed in one call share that of the first: it is in the cache.
#ifndef T
#include "kernels_gen.h"
#include "dot.h"
#include "libjit.h"
#include "product.h"

#define MAX_PATCH 8
/// Patches of a row whose pixels are collected before the epilogue has them.
#define COLLECTED 4
/// Bytes of a line of most caches, which is fetched as one.
#define LINE 64
#define LINE_FLOATS (LINE / (dim_t)sizeof(float))

/// What the functions of one size of patch are told. Steps count elements: of the input, of points, of sums.
typedef struct {
  dim_t height, width, depth, row_step, pixel_step; ///< of the input
  dim_t top, left;                                  ///< its borders
  dim_t outside;                                    ///< the integer that lies around the image, and counts as 0
  dim_t patch_cols;                                 ///< patches in a row of the image
  dim_t depth_step, spread_step;                    ///< from one patch, and one point, to the next, once spread
  dim_t sum_step;                                   ///< from one point to the next, of what products give
} winograd_t;

/// Spreads `count` patches of an image from number `first` on: elements of the input become points.
typedef void (*spread_t)(void *to, const void *image, const winograd_t *w, dim_t first, dim_t count);
/// Collects the pixels of `count` patches: lines of the result, of so many vectors of channels. They begin with `start`.
typedef void (*collect_t)(void *to, const void *start, const void *sums, const winograd_t *w, dim_t count, dim_t vectors);

/// The tiles, and the functions for the size of patch.
typedef struct {
  tiles_t tiles;
  spread_t spread;
  collect_t collect;
} winograd_tiles_t;

/// Where the epilogue stores the pixels of a slab, in pieces: of each of some neighbours a line of the cache. Where a slab is in
/// several rows of patches, all pixels of these are one row.
typedef struct {
  const float *first;
  dim_t rows, of_row, lines;              ///< rows of pixels, pieces of a row, lines of a pixel
  dim_t row_step, piece_step, pixel_step; ///< floats from one to the next
} pieces_t;

/// Those of the patches [first, last], where `image` is the first channel of a block that an image of the result has.
INLINE pieces_t pieces_of_slab(const float *image, const ints_t *shape, dim_t patch_cols, dim_t step_h, dim_t step_w,
                               dim_t first, dim_t last, dim_t vectors, dim_t of_piece) {
  dim_t height = shape->at[1], width = shape->at[2], step = shape->at[3], row = first / patch_cols * step_h;
  dim_t rows = min_dim(last / patch_cols * step_h + step_h, height) - row;
  bool one_row = first / patch_cols == last / patch_cols;
  dim_t left = one_row ? first % patch_cols * step_w : 0;
  dim_t pixels = one_row ? min_dim((last - first + 1) * step_w, width - left) : rows * width;
  return (pieces_t){.first = image + (row * width + left) * step,
                    .rows = one_row ? rows : 1,
                    .of_row = ceil_div(pixels, of_piece),
                    .lines = ceil_div(vectors * LANES, LINE_FLOATS),
                    .row_step = width * step,
                    .piece_step = of_piece * step,
                    .pixel_step = step};
}

/// Lets a tile fetch a piece; false if there are not so many.
INLINE bool fetch_piece(reach_t *reach, const pieces_t *p, dim_t index) {
  if (index >= p->rows * p->of_row * p->lines) return false;
  dim_t place = index / p->lines, row = place / p->of_row, line = index % p->lines;
  reach->ahead = p->first + row * p->row_step + place % p->of_row * p->piece_step + line * LINE_FLOATS;
  reach->ahead_step = p->pixel_step;
  return true;
}

/// Eight 8-bit integers at a time become points, as many as a vector has.
#define POINT_LANES (VECTOR_BYTES / 2)
typedef int16_t points_t __attribute__((vector_size(VECTOR_BYTES), aligned(2), may_alias));

// A point, a vector of them and how many it has, and how many neighbours in depth a step of products takes.
#define P float
#define VP vf
#define WP LANES
#define DP 1
#include "as_f32.h"
#include "winograd.c"
#undef P
#undef VP
#undef WP
#undef DP
#define P int16_t
#define VP points_t
#define WP POINT_LANES
#define DP 2
#include "as_i8.h"
#include "winograd.c"
#include "as_u8.h"
#include "winograd.c"
#else

#if DP == 1
/// A vector of the input, in floats.
INLINE VP OF(points_at)(const T *from, const VP outside) {
  (void)outside;
  return *(const VP *)from;
}
#else
INLINE VP OF(points_at)(const T *from, const VP outside) {
  typedef T __attribute__((vector_size(WP), aligned(1), may_alias)) bytes_t;
  return __builtin_convertvector(*(const bytes_t *)from, VP) - outside;
}
#endif

/// The points of a line of `size` pixels: the values of polynomials at 0, at pairs of numbers p and -p, which share their sums over
/// even and over odd powers, and at infinity. Pairs are 1, of six pixels also 2, and of eight 1/2, which has floats only. One pixel
/// is itself.
INLINE void OF(spread_line)(VP to[MAX_PATCH], const VP x[MAX_PATCH], dim_t size) {
  VP even[3], odd[3];
  if (size == 1) {
    to[0] = x[0];
    return;
  }
  if (size == 4) {
    to[0] = x[0] - x[2];
    even[0] = x[2];
    odd[0] = x[1];
    to[3] = x[3] - x[1];
  } else if (size == 6) {
    to[0] = 4 * x[0] - 5 * x[2] + x[4];
    even[0] = x[4] - 4 * x[2];
    odd[0] = x[3] - 4 * x[1];
    even[1] = x[4] - x[2];
    odd[1] = 2 * (x[3] - x[1]);
    to[5] = 4 * x[1] - 5 * x[3] + x[5];
  }
#if DP == 1
  else {
    to[0] = x[0] - x[6] + 5.25f * (x[4] - x[2]);
    even[0] = x[2] + x[6] - 4.25f * x[4];
    odd[0] = x[1] + x[5] - 4.25f * x[3];
    even[1] = 0.25f * x[2] - 1.25f * x[4] + x[6];
    odd[1] = 0.5f * x[1] - 2.5f * x[3] + 2.0f * x[5];
    even[2] = 4.0f * x[2] - 5.0f * x[4] + x[6];
    odd[2] = 2.0f * x[1] - 2.5f * x[3] + 0.5f * x[5];
    to[7] = x[7] - x[1] + 5.25f * (x[3] - x[5]);
  }
#endif
  UNROLL for (dim_t pair = 0; pair < size / 2 - 1; pair++) {
    to[1 + 2 * pair] = even[pair] + odd[pair];
    to[2 + 2 * pair] = even[pair] - odd[pair];
  }
}

/// The `pixels` values that the points of a line give: the sum of the points, each times its number to the power of the pixel. Of six
/// points of integers that of infinity is halved, for 16 bits are too few for all of it.
INLINE void OF(collect_line)(V to[MAX_PATCH], const V x[MAX_PATCH], dim_t size, dim_t pixels) {
  V even[3], odd[3];
  if (size == 1) {
    to[0] = x[0];
    return;
  }
  UNROLL for (dim_t pair = 0; pair < size / 2 - 1; pair++) {
    even[pair] = x[1 + 2 * pair] + x[2 + 2 * pair];
    odd[pair] = x[1 + 2 * pair] - x[2 + 2 * pair];
  }
  UNROLL for (dim_t i = 0; i < pixels; i++) {
    const V *sums = i % 2 ? odd : even;
    S power = (S)(1 << i);
    to[i] = size == 4 ? sums[0] : sums[0] + power * sums[1];
#if DP == 1
    if (size == 8) to[i] += 1 / power * sums[2];
#endif
    if (i == 0) to[i] += x[0];
    if (i == pixels - 1) to[i] += DP > 1 && size == 6 ? x[size - 1] + x[size - 1] : x[size - 1];
  }
}

/// A vector of channels of one patch. The rows and columns of it that lie inside the image are those of `rows` and `cols`. Of the
/// patch at `ahead` what this one does not have, its last columns, is fetched into the second-level cache meanwhile, and so is
/// where its points go: both are far apart in memory, and a processor does not see by itself which come next. Nothing is, where
/// it is NULL.
INLINE void OF(spread_patch)(P *to, const T *from, const winograd_t *w, range_t rows, range_t cols, bool inside, dim_t high,
                             dim_t wide, dim_t step_w, const T *ahead) {
  VP lines[MAX_PATCH][MAX_PATCH] ALIGNED, outside = SPLAT((P)w->outside, VP);
  ROLLED for (dim_t x = 0; x < wide; x++) {
    VP column[MAX_PATCH], points[MAX_PATCH];
    if (ahead && x >= wide - step_w) {
      UNROLL for (dim_t y = 0; y < high; y++) __builtin_prefetch(ahead + y * w->row_step + x * w->pixel_step, 0, 2);
    }
    bool in_col = inside || (x >= cols.first && x < cols.last);
    UNROLL for (dim_t y = 0; y < high; y++) {
      bool here = inside || (in_col && y >= rows.first && y < rows.last);
      column[y] = here ? OF(points_at)(from + y * w->row_step + x * w->pixel_step, outside) : (VP){};
    }
    OF(spread_line)(points, column, high);
    UNROLL for (dim_t y = 0; y < high; y++) lines[y][x] = points[y];
  }
  ROLLED for (dim_t y = 0; y < high; y++) {
    VP points[MAX_PATCH];
    OF(spread_line)(points, lines[y], wide);
    UNROLL for (dim_t x = 0; x < wide; x++) {
      P *place = to + (y * wide + x) * w->spread_step;
      if (ahead) __builtin_prefetch(place + w->depth_step, 0, 2);
      *(VP *)place = points[x];
    }
  }
}

/// Patches of high x wide pixels, whose filter has kernel_h x kernel_w.
KERNEL void OF(libjit_winograd_spread)(P *to, const T *image, const winograd_t *w, dim_t first, dim_t count, dim_t high,
                                       dim_t wide, dim_t kernel_h, dim_t kernel_w) {
  dim_t step_h = high - kernel_h + 1, step_w = wide - kernel_w + 1;
  for (dim_t patch = first; patch < first + count; patch++, to += w->depth_step) {
    dim_t row = patch / w->patch_cols * step_h - w->top, col = patch % w->patch_cols * step_w - w->left;
    range_t rows = rows_inside(row, w->height, high, 1), cols = rows_inside(col, w->width, wide, 1);
    bool inside = rows.last - rows.first == high && cols.last - cols.first == wide;
    const T *from = image + row * w->row_step + col * w->pixel_step, *ahead = from + step_w * w->pixel_step;
    if ((patch + 1) % w->patch_cols == 0) ahead += step_h * w->row_step - w->patch_cols * step_w * w->pixel_step;
    // The last vector ends with the last channel: it may spread some a second time.
    for (dim_t next = 0; next < w->depth; next += WP) {
      dim_t channel = min_dim(next, w->depth - WP);
      const T *fetched = LANES > 1 && next % (LINE / (dim_t)sizeof(T)) == 0 ? ahead + channel : NULL;
      if (inside) OF(spread_patch)(to + channel, from + channel, w, rows, cols, true, high, wide, step_w, fetched);
      else OF(spread_patch)(to + channel, from + channel, w, rows, cols, false, high, wide, step_w, fetched);
    }
  }
}

#if DP == 1
/// The larger one, or NaN if one of them is, as a pool's.
INLINE V OF(larger)(V best, V x) {
  vi chosen = (x > best) | (x != x);
  return (V)(((vi)x & chosen) | ((vi)best & ~chosen));
}

INLINE V OF(finished)(V pixels, V start, dim_t high, dim_t wide) {
  (void)high, (void)wide;
  return pixels + start;
}
#else
INLINE V OF(larger)(V best, V x) {
  vi chosen = x > best;
  return (x & chosen) | (best & ~chosen);
}

/// Pixels are 24 times too large along an axis of six points, twice along one of four: 3 is divided by modulo 2^32, the rest is
/// shifted out.
INLINE V OF(finished)(V pixels, V start, dim_t high, dim_t wide) {
  const uint32_t third = 0xAAAAAAAB;
  uint32_t factor = (high == 6 ? third : 1) * (wide == 6 ? third : 1);
  int shift = (high == 6 ? 3 : high == 4) + (wide == 6 ? 3 : wide == 4);
  return (pixels * (int32_t)factor >> shift) + start;
}
#endif

/// Of each pool_h x pool_w pixels, which patches have whole, the largest. The start is added to that: rounding keeps the order.
KERNEL void OF(libjit_winograd_collect)(S *to, const S *start, const S *sums, const winograd_t *w, dim_t count, dim_t vectors,
                                        dim_t high, dim_t wide, dim_t kernel_h, dim_t kernel_w, dim_t pool_h, dim_t pool_w) {
  dim_t step_h = high - kernel_h + 1, step_w = wide - kernel_w + 1, block = vectors * LANES;
  dim_t results = step_w / pool_w;
  for (dim_t patch = 0; patch < count; patch++) {
    for (dim_t channel = 0; channel < block; channel += LANES) {
      const S *from = sums + patch * block + channel;
      V lines[MAX_PATCH][MAX_PATCH] ALIGNED, first = *(const V *)(start + channel);
      ROLLED for (dim_t x = 0; x < wide; x++) {
        V column[MAX_PATCH], pixels[MAX_PATCH];
        UNROLL for (dim_t y = 0; y < high; y++) column[y] = *(const V *)(from + (y * wide + x) * w->sum_step);
        OF(collect_line)(pixels, column, high, step_h);
        UNROLL for (dim_t y = 0; y < step_h; y++) lines[y][x] = pixels[y];
      }
      ROLLED for (dim_t y = 0; y < step_h / pool_h; y++) {
        V best[MAX_PATCH];
        S *line = to + ((y * count + patch) * results) * block + channel;
        UNROLL for (dim_t row = 0; row < pool_h; row++) {
          V pixels[MAX_PATCH];
          OF(collect_line)(pixels, lines[y * pool_h + row], wide, step_w);
          UNROLL for (dim_t x = 0; x < step_w; x++) {
            dim_t place = x / pool_w;
            best[place] = row + x % pool_w ? OF(larger)(best[place], pixels[x]) : pixels[x];
            if (row + 1 == pool_h && (x + 1) % pool_w == 0)
              *(V *)(line + place * block) = OF(finished)(best[place], first, high, wide);
          }
        }
      }
    }
  }
}

/// A convolution with neither strides nor dilation, and the largest of each `pool` pixels of it. `result` is where the epilogue
/// stores floats, if it is known: only to be fetched. The filter is [blocks][patch_h * patch_w][C / group / DP][DP NR], the blocks of a
/// group together. Each group is as an image of its own, whose channels lie among those of others.
#if DP == 1
KERNEL void libjit_cpu_winograd_f32(float *result, const float *input, const float *filter, const float *bias, float *work,
                                    const ints_t *result_shape, const ints_t *input_shape, const ints_t *filter_shape,
                                    const ints_t *bias_shape, const ints_t *work_shape, const ints_t *result_strides,
                                    const ints_t *input_strides, const ints_t *kernels, const ints_t *pads, dim_t group,
                                    const ints_t *patch, const ints_t *pool, dim_t tile_pixels, dim_t tile_vectors,
                                    dim_t slab, dim_t bands, dim_t blocks, dim_t first_unit, dim_t last_unit, const tiles_t *tiles,
                                    epilogue_t epilogue, const void *env) {
  dim_t outside = 0, pool_h = pool->at[0], pool_w = pool->at[1];
#else
/// Of integers there is no pool: they are rounded before.
KERNEL void OF(libjit_cpu_byte_winograd)(S *result, const T *input, const P *filter, const S *bias, S *work,
                                         const ints_t *result_shape, const ints_t *input_shape, const ints_t *filter_shape,
                                         const ints_t *bias_shape, const ints_t *work_shape, const ints_t *result_strides,
                                         const ints_t *input_strides, const ints_t *kernels, const ints_t *pads, dim_t group,
                                         dim_t outside, const ints_t *patch, dim_t tile_pixels, dim_t tile_vectors, dim_t slab,
                                         dim_t bands, dim_t blocks, dim_t first_unit, dim_t last_unit, const tiles_t *tiles,
                                         epilogue_t epilogue, const void *env) {
  dim_t pool_h = 1, pool_w = 1;
#endif
  const winograd_tiles_t *functions = (const winograd_tiles_t *)tiles;
  dim_t step_h = (patch->at[0] - kernels->at[0] + 1) / pool_h; // results of a patch
  dim_t step_w = (patch->at[1] - kernels->at[1] + 1) / pool_w;
  dim_t height = result_shape->at[1], width = result_shape->at[2], channels = result_shape->at[3] / group;
  dim_t depth = input_shape->at[3] / group, points = patch->at[0] * patch->at[1], block = tile_vectors * LANES;
  dim_t patch_cols = ceil_div(width, step_w), patches = ceil_div(height, step_h) * patch_cols;
  dim_t unit_size = count_between(work_shape, 1, work_shape->size), all_blocks = filter_shape->at[0] / group;
  dim_t of_image = ceil_div(patches, tile_pixels), all_tiles = result_shape->at[0] * group * of_image;
  dim_t most = slab < patches ? slab / tile_pixels : of_image, parts = ceil_div(all_blocks, blocks);
  winograd_t w = {.height = input_shape->at[1],
                  .width = input_shape->at[2],
                  .depth = depth,
                  .row_step = input_strides->at[1],
                  .pixel_step = input_strides->at[2],
                  .top = pads->at[0],
                  .left = pads->at[1],
                  .outside = outside,
                  .patch_cols = patch_cols,
                  .depth_step = depth,
                  .spread_step = slab * depth + WP,
                  .sum_step = slab * block + LANES};
  reach_t reach = {.tap_rows = 1, .taps = 1, .run = depth, .pixel_step = depth, .block_step = 0};
  S start[MAX_TILE_VECTORS * LANES] ALIGNED, *place = work + first_unit * unit_size;
  P *spread = (P *)place;
  S *sums = place + points * w.spread_step * (dim_t)sizeof(P) / (dim_t)sizeof(S), *lines = sums + points * w.sum_step;
  dim_t spread_band = -1;
  for (dim_t unit = first_unit; unit < last_unit; unit++) {
    dim_t band = unit / parts, first_block = unit % parts * blocks;
    dim_t begin = all_tiles * band / bands, end = all_tiles * (band + 1) / bands;
    for (dim_t next = begin, slab_tiles; next < end; next += slab_tiles) {
      dim_t image = next / of_image / group, member = next / of_image % group, tile_of_image = next % of_image;
      dim_t first = tile_of_image * tile_pixels, rest = min_dim(of_image - tile_of_image, end - next);
      slab_tiles = ceil_div(rest, ceil_div(rest, most));
      dim_t count = min_dim(slab_tiles * tile_pixels, patches - first);
      if (slab_tiles < end - begin || band != spread_band) {
        functions->spread(spread, input + image * input_strides->at[0] + member * depth, &w, first, count);
        spread_band = band;
      }
      for (dim_t b = first_block; b < min_dim(first_block + blocks, all_blocks); b++) {
        dim_t valid = min_dim(block, channels - b * block), vectors = ceil_div(valid, LANES);
        dim_t channel = member * channels + b * block;
        for (dim_t i = 0; i < block; i++) start[i] = i < valid ? bias[channel + i] : 0;
        // A tile fetches something for later: of each row of the weights of the next point a vector, or two where tiles are
        // fewer than vectors; and the last ones what is about to be stored to.
        pieces_t pieces = {0};
        if (DP == 1 && result)
          pieces = pieces_of_slab((const float *)result + image * height * width * result_shape->at[3] + channel, result_shape,
                                  patch_cols, step_h, step_w, first, first + count - 1, vectors, depth);
        dim_t turns = ceil_div(count, tile_pixels), tiles_left = points * turns;
        for (dim_t point = 0; point < points; point++) {
          const P *weights = filter + ((member * all_blocks + b) * points + point) * depth * block;
          for (dim_t p = 0; p < count; p += tile_pixels) {
            dim_t pixels = min_dim(tile_pixels, count - p);
            dim_t turn = p / tile_pixels, also = turn + turns < tile_vectors ? turns * LANES * DP : 0;
            reach.ahead_also = 0;
            if (!fetch_piece(&reach, &pieces, --tiles_left)) {
              reach.ahead = weights + depth * block + turn % tile_vectors * LANES * DP;
              reach.ahead_step = turn < tile_vectors ? block * DP : 0;
              reach.ahead_also = also;
            }
            tile_t tile = tiles->regular[pixels < tile_pixels][vectors < tile_vectors];
            tile(sums + point * w.sum_step + p * vectors * LANES, NO_BIAS, spread + point * w.spread_step + p * depth,
                 weights, &reach, pixels, vectors);
          }
        }
        for (dim_t p = 0, some; p < count; p += some) {
          dim_t row = (first + p) / patch_cols * step_h, col = (first + p) % patch_cols;
          some = min_dim(min_dim(count - p, patch_cols - col), COLLECTED);
          functions->collect(lines, start, sums + p * vectors * LANES, &w, some, vectors);
          col *= step_w;
          for (dim_t y = 0; y < min_dim(step_h, height - row); y++)
            epilogue(env, lines + y * some * step_w * vectors * LANES, vectors * LANES,
                     (image * height + row + y) * width + col, channel, min_dim(some * step_w, width - col), valid);
        }
      }
    }
  }
}
#endif
