/// Convolutions over NHWC images, once for each kind of product: this file reads itself. pads = top, left, bottom, right.
#ifndef T
#include "kernels_gen.h"
#include "libjit.h"
#include "product.h"

/// What a depthwise convolution does to each line of an image; constants but for the pointers and `taps`.
typedef struct {
  const void *filter, *bias;
  dim_t channels;              ///< of the result
  dim_t depth, group;          ///< channels of a group: of the input, and of the result
  dim_t line, step;            ///< input: elements of a row, and of a pixel
  dim_t height, width;         ///< of the input
  dim_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, top;
  range_t taps;                ///< the rows of the kernel that lie inside the image
  int32_t outside;             ///< what lies outside; of floats, zero
  dim_t out_width, image_row;  ///< pixels of a line of the result, and before its image
  epilogue_t epilogue;
  const void *env;
} depthwise_t;

#if defined(__AVX512F__) && VECTOR_BYTES == 64
/// Whether lanes are taken from computed places by an instruction: then their loop need not be unrolled.
#define PICKS_LANES 1
#define OF_GROUP ROLLED
typedef __typeof__((vd){} > (vd){}) vl;
INLINE vf pick_lanes_f32(vf x, vi places) { return __builtin_ia32_permvarsf512(x, places); }
INLINE vd pick_lanes_f64(vd x, vl places) { return __builtin_ia32_permvardf512(x, places); }
#else
#define PICKS_LANES 0
#define OF_GROUP UNROLL
#endif

#include "as_f32.h"
#include "conv.c"
#include "as_f64.h"
#include "conv.c"
#include "as_i8.h"
#include "conv.c"
#include "as_u8.h"
#include "conv.c"
#include "as_bf16.h"
#include "conv.c"
#else

#if D != 2  // numbers in bf16 are multiplied in pairs only

typedef int32_t OF(lanes_t) __attribute__((vector_size(4 * W)));
typedef bool OF(mask_t) __attribute__((ext_vector_type(W)));

/// Lanes [0, lanes) set.
INLINE OF(mask_t) OF(first_lanes)(dim_t lanes) {
  OF(lanes_t) lane;
  UNROLL for (int i = 0; i < W; i++) lane[i] = i;
  return __builtin_convertvector(lane < (int32_t)lanes, OF(mask_t));
}

/// A function that reads the first `lanes` elements at `pointer`, zeros after them, as numbers of the sums' kind. It
/// reads nothing beyond.
#define LOAD_FIRST(NAME, E)                                                                                            \
  typedef E OF(NAME##_t) __attribute__((ext_vector_type(W), aligned(sizeof(E)), may_alias));                           \
  INLINE V OF(NAME)(const E *pointer, dim_t lanes) {                                                                   \
    if (lanes <= 0) return (V){};                                                                                      \
    OF(NAME##_t) elements = lanes >= W ? *(const OF(NAME##_t) *)pointer                                                \
                                       : __builtin_masked_load(OF(first_lanes)(lanes), pointer, (OF(NAME##_t)){});     \
    return __builtin_convertvector(elements, V);                                                                       \
  }

LOAD_FIRST(load_input, T)
LOAD_FIRST(load_filter, F)
LOAD_FIRST(load_bias, S)
#undef LOAD_FIRST

#endif

/// A convolution with a packed filter. Nothing is padded: what lies outside the image is read from `zeros`. Where pixels are
/// computed each by itself and lie at equal distances, the caller says that an image is one row.
KERNEL void OF(libjit_cpu_conv)(S *result, const T *input, const F *filter, const S *bias,
                                const T *zeros, const ints_t *result_shape, const ints_t *input_shape,
                                const ints_t *filter_shape, const ints_t *bias_shape, const ints_t *zeros_shape,
                                const ints_t *result_strides, const ints_t *input_strides, const ints_t *kernels,
                                const ints_t *strides, const ints_t *pads, const ints_t *dilation, dim_t group,
                                dim_t tile_pixels, dim_t tile_vectors, dim_t line, dim_t slab, dim_t fetch,
                                dim_t first_unit, dim_t last_unit, const tiles_t *tiles, epilogue_t epilogue,
                                const void *env) {
  bool padded = pads->at[0] || pads->at[1] || pads->at[2] || pads->at[3];
  dim_t packed = filter_shape->at[filter_shape->size - 1] / D;
  product_t product = {.input = input,
                       .weights = filter,
                       .bias = bias,
                       .zeros = zeros,
                       .size = sizeof(T),
                       .sum_size = sizeof(S),
                       .lanes = lanes_of(W, packed),
                       .dot = D,
                       .images = result_shape->at[0],
                       .groups = group,
                       .pixels = result_shape->at[1] * result_shape->at[2],
                       .width = line,
                       .channels = result_shape->at[3] / group,
                       .depth = input_shape->at[3] / group,
                       .block = packed,
                       .in_height = input_shape->at[1],
                       .in_width = input_shape->at[2],
                       .image_step = input_strides->at[0],
                       .row_step = input_strides->at[1],
                       .step = input_strides->at[2],
                       .out_width = result_shape->at[2],
                       .kernel_h = kernels->at[0],
                       .kernel_w = kernels->at[1],
                       .stride_h = strides->at[0],
                       .stride_w = strides->at[1],
                       .dilation_h = dilation->at[0],
                       .dilation_w = dilation->at[1],
                       .top = pads->at[0],
                       .left = pads->at[1],
                       .pointwise = result_shape->at[1] == 1 && count(kernels) == 1 && count(strides) == 1 && !padded};
  decision_t decision = {tile_pixels, tile_vectors, slab, fetch};
  S sums[MAX_TILE_SUMS * W] ALIGNED, start[MAX_TILE_VECTORS * W] ALIGNED;
  for (dim_t unit = first_unit; unit < last_unit; unit++)
    multiply_unit(&product, decision, find_unit(&product, decision, unit), sums, start, tiles, epilogue, env);
}

#if D != 2

/// A convolution a number at a time: the least code, where that counts.
KERNEL void OF(libjit_cpu_plain_conv)(S *result, const T *input, const F *filter, const S *bias,
                                      const ints_t *result_shape, const ints_t *input_shape,
                                      const ints_t *filter_shape, const ints_t *bias_shape,
                                      const ints_t *result_strides, const ints_t *input_strides,
                                      const ints_t *kernels, const ints_t *strides, const ints_t *pads,
                                      const ints_t *dilation, dim_t group, dim_t outside,
                                      const tiles_t *tiles, epilogue_t epilogue, const void *env) {
  dim_t height = input_shape->at[1], width = input_shape->at[2], depth = filter_shape->at[3];
  dim_t channels = result_shape->at[3], pixel = 0;
  for (dim_t n = 0; n < result_shape->at[0]; n++) {
    for (dim_t y = 0; y < result_shape->at[1]; y++) {
      for (dim_t x = 0; x < result_shape->at[2]; x++, pixel++) {
        const F *weights = filter;
        for (dim_t c = 0; c < channels; c++) {
          S total = bias[c];
          for (dim_t h = 0; h < kernels->at[0]; h++) {
            dim_t row = y * strides->at[0] - pads->at[0] + h * dilation->at[0];
            for (dim_t w = 0; w < kernels->at[1]; w++, weights += depth) {
              dim_t col = x * strides->at[1] - pads->at[1] + w * dilation->at[1];
              bool inside = (size_t)row < (size_t)height && (size_t)col < (size_t)width;
              if (D == 1 && !inside) continue;
              const T *from = input + n * input_strides->at[0] + row * input_strides->at[1] +
                              col * input_strides->at[2] + (group == 1 ? 0 : c / (channels / group) * depth);
              if (inside && depth) total = OF(libjit_dot)(total, from, weights, depth);
              if (!inside)
                for (dim_t k = 0; k < depth; k++) total += (T)outside * weights[k];
            }
          }
          epilogue(env, &total, 1, pixel, c, 1, 1);
        }
      }
    }
  }
}

/// The channels of as many whole groups as a vector has room for, of their input and of their result.
INLINE dim_t OF(lanes_of_groups)(dim_t depth, dim_t group) { return W / max_dim(depth, group) * group; }

/// For every lane of the result what lane `index` of its group has in the input.
INLINE V OF(lane_of_group)(V x, dim_t depth, dim_t group, dim_t index) {
  if (depth == 1 && group == 1) return x;
#if PICKS_LANES && D == 1
  __typeof__((V){} > (V){}) places;
  UNROLL for (int lane = 0; lane < W; lane++) places[lane] = lane / (int)group * (int)depth + (int)index;
  return OF(pick_lanes)(x, places);
#else
  V all = x;
  UNROLL for (dim_t lane = 0; lane < W; lane++) all[lane] = x[min_dim(lane / group * depth + index, W - 1)];
  return all;
#endif
}

/// `pixels` pixels of `lanes` channels. `input` is where the window of the first one begins, in column `col`. What lies
/// outside the image is added unless it is zero.
INLINE void OF(depthwise_tile)(S *sums, const T *input, dim_t col, dim_t channel, const depthwise_t *d,
                               dim_t pixels, dim_t lanes) {
  const F *filter = d->filter;
  const S *bias = d->bias;
  V sum[MAX_DEPTHWISE_PIXELS];
  UNROLL for (dim_t p = 0; p < pixels; p++) sum[p] = OF(load_bias)(bias + channel, lanes);
  dim_t read = lanes / d->group * d->depth;
  dim_t first = D == 1 ? d->taps.first : 0, last = D == 1 ? d->taps.last : d->kernel_h;
  for (dim_t h = first; h < last; h++) {
    bool in_row = D == 1 || (h >= d->taps.first && h < d->taps.last);
    // Unrolled, so that an input vector under several windows is loaded once.
    OF_GROUP for (dim_t i = 0; i < d->depth; i++) {
      UNROLL for (dim_t w = 0; w < d->kernel_w; w++) {
        const T *from = input + h * d->dilation_h * d->line + w * d->dilation_w * d->step;
        const F *taps = filter + ((h * d->kernel_w + w) * d->depth + i) * d->channels;
        V weight = OF(load_filter)(taps + channel, lanes);
        UNROLL for (dim_t p = 0; p < pixels; p++) {
          dim_t x = col + w * d->dilation_w + p * d->stride_w;
          if (in_row && x >= 0 && x < d->width)
            sum[p] += OF(lane_of_group)(OF(load_input)(from + p * d->stride_w * d->step, read), d->depth, d->group, i) * weight;
          else if (D > 1)
            sum[p] += (S)d->outside * weight;
        }
      }
    }
  }
  // In ascending order, as what lies beyond the lanes of one is where the next one begins.
  dim_t ld = OF(lanes_of_groups)(d->depth, d->group);
  UNROLL for (dim_t p = 0; p < pixels; p++) *(V *)(sums + p * ld) = sum[p];
}

/// A tile of `pixels` pixels of each line from `y` to before `last_y` of the result, for the channels from `from` to
/// before `to`. `input` is where the window of its first pixel begins in the first row of the image.
INLINE void OF(depthwise_column)(const T *input, dim_t col, dim_t pixel, depthwise_t d, dim_t y, dim_t last_y, dim_t from,
                                 dim_t to, dim_t pixels) {
  S sums[MAX_DEPTHWISE_PIXELS * W] ALIGNED;
  dim_t lanes = OF(lanes_of_groups)(d.depth, d.group);
  dim_t rest = d.channels % lanes, whole = to - (to == d.channels ? rest : 0);
  for (; y < last_y; y++) {
    dim_t top = y * d.stride_h - d.top, row = d.image_row + y * d.out_width + pixel;
    const T *window = input + top * d.line;
    d.taps = rows_inside(top, d.height, d.kernel_h, d.dilation_h);
    for (dim_t channel = from; channel < whole; channel += lanes) {
      OF(depthwise_tile)(sums, window + channel / d.group * d.depth, col, channel, &d, pixels, lanes);
      d.epilogue(d.env, sums, lanes, row, channel, pixels, lanes);
    }
    if (rest && to == d.channels) {
      OF(depthwise_tile)(sums, window + whole / d.group * d.depth, col, whole, &d, pixels, rest);
      d.epilogue(d.env, sums, lanes, row, whole, pixels, rest);
    }
  }
}

/// The same of whole lines whose width is no constant. Tiles whose windows reach over no edge are whole; each pixel beside
/// them is one by itself, for which there is code once. A tile of any number of pixels, any of which may lie at an edge,
/// would be four times as much code, and no faster: its sums would not stay in registers.
INLINE void OF(depthwise_lines)(const T *image, depthwise_t d, dim_t left, dim_t y, dim_t last_y, dim_t from, dim_t to,
                                dim_t pixels) {
  dim_t reach = (d.kernel_w - 1) * d.dilation_w, beyond = max_dim(d.width + left - reach, 0);
  dim_t begin = ceil_div(left, d.stride_w), end = min_dim(ceil_div(beyond, d.stride_w), d.out_width);
  depthwise_t inside = d;
  inside.width = DIM_MAX;
  for (dim_t x = 0; x < d.out_width;) {
    const T *window = image + x * d.stride_w * d.step;
    if (x >= begin && x + pixels <= end) {
      OF(depthwise_column)(window, 0, x, inside, y, last_y, from, to, pixels);
      x += pixels;
    } else {
      OF(depthwise_column)(window, x * d.stride_w - left, x, d, y, last_y, from, to, 1);
      x++;
    }
  }
}

/// One filter per channel, of the channels of its group, laid out [KH][KW][I][C]. Whole groups fill a vector. A unit is a slab of lines of an image times a block of channels; it goes
/// down a tile's width of all its lines before the next, so that the rows that their windows share stay in the first
/// cache. The tiles at the left and the right edge leave out what lies outside; those between are code of their own,
/// which never asks. With `single_edges` pixels at an edge are no tiles.
KERNEL void OF(libjit_cpu_depthwise_conv)(S *result, const T *input, const F *filter, const S *bias,
                                          const ints_t *result_shape, const ints_t *input_shape,
                                          const ints_t *filter_shape, const ints_t *bias_shape,
                                          const ints_t *result_strides, const ints_t *input_strides,
                                          const ints_t *kernels, const ints_t *strides, const ints_t *pads,
                                          const ints_t *dilation, dim_t outside, dim_t tile_pixels, dim_t slab,
                                          dim_t vectors, bool single_edges, dim_t first_unit, dim_t last_unit,
                                          const tiles_t *tiles, epilogue_t epilogue, const void *env) {
  dim_t height = result_shape->at[1], width = result_shape->at[2], channels = result_shape->at[3];
  dim_t depth = filter_shape->at[2], group = depth == 1 && channels == input_shape->at[3] ? 1 : channels * depth / input_shape->at[3];
  dim_t cols = input_shape->at[2], step = input_strides->at[2];
  dim_t block = vectors * OF(lanes_of_groups)(depth, group), slabs = ceil_div(height, slab), blocks = ceil_div(channels, block);
  dim_t tiles_of_row = ceil_div(width, tile_pixels), last = (tiles_of_row - 1) * tile_pixels;
  dim_t col_step = tile_pixels * strides->at[1], left = pads->at[1];
  dim_t span = (tile_pixels - 1) * strides->at[1] + (kernels->at[1] - 1) * dilation->at[1];
  if (tiles_of_row == 0) return;  // an epilogue is called for a pixel at least
  // Only where no other tile than the first and the last reaches over an edge, those between need not look.
  bool inside = col_step >= left && (tiles_of_row - 2) * col_step - left + span < cols;
  for (dim_t unit = first_unit; unit < last_unit; unit++) {
    dim_t n = unit / (slabs * blocks), y = unit / blocks % slabs * slab, last_y = min_dim(y + slab, height);
    dim_t from = unit % blocks * block, to = min_dim(from + block, channels);
    depthwise_t d = {.filter = filter,
                     .bias = bias,
                     .channels = channels,
                     .depth = depth,
                     .group = group,
                     .line = input_strides->at[1],
                     .step = step,
                     .height = input_shape->at[1],
                     .width = cols,
                     .kernel_h = kernels->at[0],
                     .kernel_w = kernels->at[1],
                     .stride_h = strides->at[0],
                     .stride_w = strides->at[1],
                     .dilation_h = dilation->at[0],
                     .dilation_w = dilation->at[1],
                     .top = pads->at[0],
                     .outside = (int32_t)outside,
                     .out_width = width,
                     .image_row = n * height * width,
                     .epilogue = epilogue,
                     .env = env};
    const T *image = input + n * input_strides->at[0] - left * step;
    if (single_edges) {
      OF(depthwise_lines)(image, d, left, y, last_y, from, to, tile_pixels);
      continue;
    }
    OF(depthwise_column)(image, -left, 0, d, y, last_y, from, to, min_dim(tile_pixels, width));
    d.width = inside ? DIM_MAX : cols;
    for (dim_t t = 1; t + 1 < tiles_of_row; t++) {
      dim_t col = inside ? 0 : t * col_step - left;
      OF(depthwise_column)(image + t * col_step * step, col, t * tile_pixels, d, y, last_y, from, to, tile_pixels);
    }
    d.width = cols;
    if (tiles_of_row > 1)
      OF(depthwise_column)(image + last * strides->at[1] * step, last * strides->at[1] - left, last, d, y, last_y, from,
                           to, width - last);
  }
}

#endif

#endif
