/// Convolutions over NHWC images; pads = top, left, bottom, right.
#include "kernels_gen.h"
#include "libjit.h"
#include "tile.h"

/// Copies one image into the middle of a frame of zeros.
INLINE void pad_image(float *padded, const float *image, const ints_t *input_shape, const ints_t *padded_shape,
                      const ints_t *pads) {
  dim_t line = input_shape->at[2] * input_shape->at[3], padded_line = padded_shape->at[2] * padded_shape->at[3];
  dim_t height = input_shape->at[1], top = pads->at[0], left = pads->at[1] * input_shape->at[3];
  __builtin_memset(padded, 0, top * padded_line * sizeof(float));
  for (dim_t h = 0; h < height; h++) {
    float *to = padded + (top + h) * padded_line;
    __builtin_memset(to, 0, left * sizeof(float));
    __builtin_memcpy(to + left, image + h * line, line * sizeof(float));
    __builtin_memset(to + left + line, 0, (padded_line - left - line) * sizeof(float));
  }
  __builtin_memset(padded + (top + height) * padded_line, 0,
                   (padded_shape->at[1] - top - height) * padded_line * sizeof(float));
}

/// The grid of one image, whose rows lie `input_line` floats apart.
INLINE grid_t grid_of_image(const ints_t *result_shape, const ints_t *kernels, const ints_t *strides,
                            const ints_t *dilation, dim_t group, dim_t input_channels, dim_t input_line,
                            dim_t block) {
  // Neighbouring taps of a row are neighbours in memory, so they join into one run.
  bool joined = group == 1 && dilation->at[1] == 1;
  return (grid_t){
      .height = result_shape->at[1],
      .width = result_shape->at[2],
      .row_step = strides->at[0] * input_line,
      .col_step = strides->at[1] * input_channels,
      .taps_h = kernels->at[0],
      .tap_h_step = dilation->at[0] * input_line,
      .taps_w = joined ? 1 : kernels->at[1],
      .tap_w_step = dilation->at[1] * input_channels,
      .run = (joined ? kernels->at[1] : 1) * (input_channels / group),
      .channels = result_shape->at[3] / group,
      .ld = result_shape->at[3],
      .weight_step = block,
  };
}

/// A convolution with a packed filter. `padded` holds a copy of one image with its border, or is empty if pads are 0.
KERNEL void libjit_cpu_conv_f32(float *result, const float *input, const float *filter, const float *bias,
                                float *padded, const ints_t *result_shape, const ints_t *input_shape,
                                const ints_t *filter_shape, const ints_t *bias_shape, const ints_t *padded_shape,
                                const ints_t *kernels, const ints_t *strides, const ints_t *pads,
                                const ints_t *dilation, dim_t group, dim_t tile_rows, dim_t tile_cols,
                                dim_t tile_vectors, epilogue_t epilogue, const void *env) {
  bool has_pads = count(padded_shape) > 0;
  dim_t channels = input_shape->at[3], block = tile_vectors * LANES, images = result_shape->at[0];
  dim_t line = (has_pads ? padded_shape->at[2] : input_shape->at[2]) * channels;
  grid_t grid = grid_of_image(result_shape, kernels, strides, dilation, group, channels, line, block);
  if (!has_pads && count(kernels) == 1 && count(strides) == 1) {
    // Every pixel by itself: the batch is one long row.
    grid.width *= images * grid.height;
    grid.height = images = 1;
  }
  dim_t group_weights = (grid.channels + block - 1) / block * block * grid.taps_h * grid.taps_w * grid.run;
  for (dim_t n = 0; n < images; n++) {
    const float *image = input + n * input_shape->at[1] * input_shape->at[2] * channels;
    if (has_pads) {
      pad_image(padded, image, input_shape, padded_shape, pads);
      image = padded;
    }
    for (dim_t g = 0; g < group; g++) {
      dim_t col = g * grid.channels;
      work_t work = {.result = result,
                     .input = image + g * (channels / group),
                     .weights = filter + g * group_weights,
                     .bias = bias + col,
                     .offset = n * grid.height * grid.width * grid.ld + col,
                     .col = col,
                     .padded_weights = true,
                     .epilogue = epilogue,
                     .env = env};
      multiply_grid(work, grid, (tile_t){tile_rows, tile_cols, tile_vectors});
    }
  }
}

/// Pixels that a depthwise convolution computes at once: up to eight, without a remainder if possible.
INLINE dim_t depthwise_cols(dim_t width) {
  if (width % 8 == 0) return 8;
  if (width % 7 == 0) return 7;
  if (width % 6 == 0) return 6;
  if (width % 5 == 0) return 5;
  return min_dim(width, 8);
}

/// `cols` pixels of `lanes` channels of a depthwise convolution. `input` is where the first window begins.
INLINE void depthwise_tile(float *result, const float *input, const float *filter, const float *bias, dim_t channels,
                           dim_t line, const ints_t *kernels, const ints_t *strides, const ints_t *dilation,
                           dim_t cols, dim_t lanes) {
  vf sums[8];
  UNROLL for (dim_t c = 0; c < cols; c++) sums[c] = load_first(bias, lanes);
  for (dim_t h = 0; h < kernels->at[0]; h++) {
    // Unrolled, so that an input vector under several windows is loaded once.
    UNROLL for (dim_t w = 0; w < kernels->at[1]; w++) {
      const float *from = input + h * dilation->at[0] * line + w * dilation->at[1] * channels;
      vf weight = load_first(filter + (h * kernels->at[1] + w) * channels, lanes);
      UNROLL for (dim_t c = 0; c < cols; c++)
        sums[c] += load_first(from + c * strides->at[1] * channels, lanes) * weight;
    }
  }
  UNROLL for (dim_t c = 0; c < cols; c++) store_first(result + c * channels, sums[c], lanes);
}

/// `cols` pixels, all channels.
INLINE void depthwise_pixels(float *result, dim_t offset, const float *input, const float *filter, const float *bias,
                             dim_t channels, dim_t line, const ints_t *kernels, const ints_t *strides,
                             const ints_t *dilation, dim_t cols, epilogue_t epilogue, const void *env) {
  dim_t channel = 0;
  for (; channel + LANES <= channels; channel += LANES) {
    depthwise_tile(result + offset + channel, input + channel, filter + channel, bias + channel, channels, line,
                   kernels, strides, dilation, cols, LANES);
    if (epilogue) epilogue(env, offset + channel, channel, cols, LANES);
  }
  if (channels % LANES) {
    depthwise_tile(result + offset + channel, input + channel, filter + channel, bias + channel, channels, line,
                   kernels, strides, dilation, cols, channels % LANES);
    if (epilogue) epilogue(env, offset + channel, channel, cols, channels % LANES);
  }
}

/// One filter per channel, laid out [KH][KW][C]; `padded` as for the packed convolution.
KERNEL void libjit_cpu_depthwise_conv_f32(float *result, const float *input, const float *filter, const float *bias,
                                          float *padded, const ints_t *result_shape, const ints_t *input_shape,
                                          const ints_t *filter_shape, const ints_t *bias_shape,
                                          const ints_t *padded_shape, const ints_t *kernels, const ints_t *strides,
                                          const ints_t *pads, const ints_t *dilation, epilogue_t epilogue,
                                          const void *env) {
  bool has_pads = count(padded_shape) > 0;
  dim_t height = result_shape->at[1], width = result_shape->at[2], channels = result_shape->at[3];
  dim_t line = (has_pads ? padded_shape->at[2] : input_shape->at[2]) * channels;
  dim_t cols = depthwise_cols(width);
  for (dim_t n = 0; n < result_shape->at[0]; n++) {
    const float *image = input + n * input_shape->at[1] * input_shape->at[2] * channels;
    if (has_pads) {
      pad_image(padded, image, input_shape, padded_shape, pads);
      image = padded;
    }
    for (dim_t h = 0; h < height; h++) {
      const float *from = image + h * strides->at[0] * line;
      dim_t offset = (n * height + h) * width * channels, w = 0;
      for (; w + cols <= width; w += cols)
        depthwise_pixels(result, offset + w * channels, from + w * strides->at[1] * channels, filter, bias, channels,
                         line, kernels, strides, dilation, cols, epilogue, env);
      if (cols && width % cols)
        depthwise_pixels(result, offset + w * channels, from + w * strides->at[1] * channels, filter, bias, channels,
                         line, kernels, strides, dilation, width % cols, epilogue, env);
    }
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
