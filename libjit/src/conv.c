/// Convolutions over NHWC images; pads = top, left, bottom, right.
#include "kernels_gen.h"
#include "libjit.h"
#include "product.h"

/// A convolution with a packed filter. Nothing is padded: what lies outside the image is read from `zeros`.
KERNEL void libjit_cpu_conv_f32(float *result, const float *input, const float *filter, const float *bias,
                                const float *zeros, const ints_t *result_shape, const ints_t *input_shape,
                                const ints_t *filter_shape, const ints_t *bias_shape, const ints_t *zeros_shape,
                                const ints_t *result_strides, const ints_t *input_strides, const ints_t *kernels,
                                const ints_t *strides, const ints_t *pads, const ints_t *dilation, dim_t group,
                                dim_t tile_pixels, dim_t tile_vectors, dim_t line, dim_t slab, dim_t fetch,
                                dim_t first_unit, dim_t last_unit, const tiles_t *tiles, epilogue_t epilogue,
                                const void *env) {
  bool pointwise = count(kernels) == 1 && count(strides) == 1 && sum(pads) == 0;
  dim_t image_loop = loop_step(input_shape, input_strides, 1, 3);
  dim_t all_loop = loop_step(input_shape, input_strides, 0, 3);
  product_t product = {.input = input,
                       .weights = filter,
                       .bias = bias,
                       .zeros = zeros,
                       .images = result_shape->at[0],
                       .groups = group,
                       .pixels = result_shape->at[1] * result_shape->at[2],
                       .width = line,
                       .channels = result_shape->at[3] / group,
                       .depth = input_shape->at[3] / group,
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
                       .pointwise = pointwise && image_loop >= 0};
  if (product.pointwise) product.step = image_loop;
  if (pointwise && all_loop >= 0) {
    // The batch is one long row.
    product.step = all_loop;
    product.pixels *= product.images;
    product.images = 1;
  }
  multiply_units(&product, (decision_t){tile_pixels, tile_vectors, slab, fetch}, tiles, first_unit, last_unit,
                 epilogue, env);
}

/// What a depthwise convolution does to each line of an image; constants but for the pointers.
typedef struct {
  const float *filter, *bias;
  dim_t channels, line, step;  ///< input: channels of a pixel, floats of a row, and of a pixel
  dim_t width;                 ///< of the input
  dim_t kernel_w, stride_w, dilation_h, dilation_w;
  range_t taps;                ///< the rows of the kernel that lie inside the image
  dim_t row;                   ///< the first of the result's pixels
  epilogue_t epilogue;
  const void *env;
} depthwise_t;

/// `pixels` pixels of `lanes` channels. `input` is where the window of the first one begins, in column `col`.
INLINE void depthwise_tile(float *sums, const float *input, dim_t col, dim_t channel, const depthwise_t *d,
                           dim_t pixels, dim_t lanes) {
  vf sum[MAX_DEPTHWISE_PIXELS];
  UNROLL for (dim_t p = 0; p < pixels; p++) sum[p] = load_first(d->bias + channel, lanes);
  for (dim_t h = d->taps.first; h < d->taps.last; h++) {
    // Unrolled, so that an input vector under several windows is loaded once.
    UNROLL for (dim_t w = 0; w < d->kernel_w; w++) {
      const float *from = input + h * d->dilation_h * d->line + w * d->dilation_w * d->step;
      vf weight = load_first(d->filter + (h * d->kernel_w + w) * d->channels + channel, lanes);
      UNROLL for (dim_t p = 0; p < pixels; p++) {
        dim_t x = col + w * d->dilation_w + p * d->stride_w;
        if (x >= 0 && x < d->width) sum[p] += load_first(from + p * d->stride_w * d->step, lanes) * weight;
      }
    }
  }
  UNROLL for (dim_t p = 0; p < pixels; p++) LIKE_VECTOR(sums + p * LANES) = sum[p];
}

/// `pixels` pixels from `first` of the line on, all channels.
INLINE void depthwise_pixels(const float *input, dim_t col, dim_t first, const depthwise_t *d, dim_t pixels) {
  float sums[MAX_DEPTHWISE_PIXELS * LANES];
  dim_t channel = 0, rest = d->channels % LANES;
  for (; channel + LANES <= d->channels; channel += LANES) {
    depthwise_tile(sums, input + channel, col, channel, d, pixels, LANES);
    d->epilogue(d->env, sums, LANES, d->row + first, channel, pixels, LANES);
  }
  if (rest) {
    depthwise_tile(sums, input + channel, col, channel, d, pixels, rest);
    d->epilogue(d->env, sums, LANES, d->row + first, channel, pixels, rest);
  }
}

/// One filter per channel, laid out [KH][KW][C]. A unit is a line of an image. The tiles at the left and the right
/// edge leave out what lies outside; those between are code of their own, which never asks.
KERNEL void libjit_cpu_depthwise_conv_f32(float *result, const float *input, const float *filter, const float *bias,
                                          const ints_t *result_shape, const ints_t *input_shape,
                                          const ints_t *filter_shape, const ints_t *bias_shape,
                                          const ints_t *result_strides, const ints_t *input_strides,
                                          const ints_t *kernels, const ints_t *strides, const ints_t *pads,
                                          const ints_t *dilation, dim_t tile_pixels, dim_t first_unit,
                                          dim_t last_unit, const tiles_t *tiles, epilogue_t epilogue,
                                          const void *env) {
  dim_t height = result_shape->at[1], width = result_shape->at[2], rows = input_shape->at[1];
  dim_t cols = input_shape->at[2], line = input_strides->at[1], step = input_strides->at[2];
  dim_t tiles_of_row = ceil_div(width, tile_pixels), last = (tiles_of_row - 1) * tile_pixels;
  dim_t col_step = tile_pixels * strides->at[1], left = pads->at[1];
  dim_t span = (tile_pixels - 1) * strides->at[1] + (kernels->at[1] - 1) * dilation->at[1];
  // Only where no other tile than the first and the last reaches over an edge, those between need not look.
  bool inside = col_step >= left && (tiles_of_row - 2) * col_step - left + span < cols;
  for (dim_t unit = first_unit; unit < last_unit; unit++) {
    dim_t n = unit / height, y = unit % height * strides->at[0] - pads->at[0];
    range_t taps = rows_inside(y, rows, kernels->at[0], dilation->at[0]);
    depthwise_t d = {.filter = filter,
                     .bias = bias,
                     .channels = input_shape->at[3],
                     .line = line,
                     .step = step,
                     .width = cols,
                     .kernel_w = kernels->at[1],
                     .stride_w = strides->at[1],
                     .dilation_h = dilation->at[0],
                     .dilation_w = dilation->at[1],
                     .taps = taps,
                     .row = unit * width,
                     .epilogue = epilogue,
                     .env = env};
    const float *row = input + n * input_strides->at[0] + y * line - left * step;
    depthwise_pixels(row, -left, 0, &d, min_dim(tile_pixels, width));
    d.width = inside ? DIM_MAX : cols;
    for (dim_t t = 1; t + 1 < tiles_of_row; t++)
      depthwise_pixels(row + t * col_step * step, inside ? 0 : t * col_step - left, t * tile_pixels, &d, tile_pixels);
    d.width = cols;
    if (tiles_of_row > 1)
      depthwise_pixels(row + last * strides->at[1] * step, last * strides->at[1] - left, last, &d, width - last);
  }
}

/// A list of one to three numbers about spatial dimensions, as depth, height, width.
typedef struct {
  dim_t d, h, w;
} spatial_t;

INLINE spatial_t spatial(const ints_t *list, dim_t first, dim_t rank, dim_t missing) {
  const dim_t *at = list->at + first;
  return (spatial_t){rank > 2 ? at[rank - 3] : missing, rank > 1 ? at[rank - 2] : missing, at[rank - 1]};
}

/// A convolution of any spatial rank from 1 to 3: input N, spatial, C; filter O, spatial, C / group; pads = all
/// begins, then all ends. Only the begins matter: what lies outside the image counts as zero.
#define CONVOLUTION(SUFFIX, T)                                                                                         \
  INLINE T dot_##SUFFIX(const T *a, const T *b, dim_t n) {                                                             \
    T sum = 0;                                                                                                         \
    for (dim_t i = 0; i < n; i++) {                                                                                    \
      _Pragma("clang fp reassociate(on)") sum += a[i] * b[i];                                                          \
    }                                                                                                                  \
    return sum;                                                                                                        \
  }                                                                                                                    \
                                                                                                                       \
  INLINE T window_##SUFFIX(const T *image, const T *filter, spatial_t first, spatial_t extent, spatial_t kernel,       \
                           spatial_t step, dim_t channels, dim_t depth) {                                              \
    T sum = 0;                                                                                                         \
    for (dim_t kd = 0; kd < kernel.d; kd++) {                                                                          \
      for (dim_t kh = 0; kh < kernel.h; kh++) {                                                                        \
        for (dim_t kw = 0; kw < kernel.w; kw++) {                                                                      \
          dim_t d = first.d + kd * step.d, h = first.h + kh * step.h, w = first.w + kw * step.w;                       \
          if (d < 0 || d >= extent.d || h < 0 || h >= extent.h || w < 0 || w >= extent.w) continue;                    \
          sum += dot_##SUFFIX(image + ((d * extent.h + h) * extent.w + w) * channels,                                  \
                              filter + ((kd * kernel.h + kh) * kernel.w + kw) * depth, depth);                         \
        }                                                                                                              \
      }                                                                                                                \
    }                                                                                                                  \
    return sum;                                                                                                        \
  }                                                                                                                    \
                                                                                                                       \
  KERNEL void libjit_convolution_##SUFFIX(                                                                             \
      T *result, const T *input, const T *filter, const T *bias, const ints_t *result_shape,                           \
      const ints_t *input_shape, const ints_t *filter_shape, const ints_t *bias_shape, const ints_t *kernels,          \
      const ints_t *strides, const ints_t *pads, const ints_t *dilation, dim_t group) {                                \
    dim_t rank = kernels->size;                                                                                        \
    spatial_t to = spatial(result_shape, 1, rank, 1), from = spatial(input_shape, 1, rank, 1);                         \
    spatial_t kernel = spatial(kernels, 0, rank, 1), stride = spatial(strides, 0, rank, 1);                            \
    spatial_t begin = spatial(pads, 0, rank, 0), step = spatial(dilation, 0, rank, 1);                                 \
    dim_t channels = input_shape->at[rank + 1], depth = channels / group, outputs = result_shape->at[rank + 1];        \
    dim_t image_size = from.d * from.h * from.w * channels, taps = kernel.d * kernel.h * kernel.w * depth;             \
    for (dim_t n = 0; n < result_shape->at[0]; n++)                                                                    \
      for (dim_t d = 0; d < to.d; d++)                                                                                 \
        for (dim_t h = 0; h < to.h; h++)                                                                               \
          for (dim_t w = 0; w < to.w; w++)                                                                             \
            for (dim_t o = 0; o < outputs; o++) {                                                                      \
              spatial_t first = {d * stride.d - begin.d, h * stride.h - begin.h, w * stride.w - begin.w};              \
              const T *image = input + n * image_size + o / (outputs / group) * depth;                                 \
              *result++ = bias[o] + window_##SUFFIX(image, filter + o * taps, first, from, kernel, step, channels,     \
                                                    depth);                                                            \
            }                                                                                                          \
  }

CONVOLUTION(f32, float)
CONVOLUTION(f64, double)
