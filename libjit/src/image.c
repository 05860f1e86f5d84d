/// Images that are read at computed places, and put together of columns. Samples and regions are of floats and of doubles:
/// this file reads itself once for each.
#ifndef T
#include "kernels_gen.h"
#include "libjit.h"
#include "math.h"

/// What a point between pixels is made of, and what lies outside of an image.
enum { NEAREST = 0, LINEAR = 1, CUBIC = 3 };
enum { ZEROS = 0, BORDER = 1, REFLECTION = 2 };

/// Of three dimensions with four taps each.
enum { MOST_TAPS = 64 };

/// At most so many are one sum in registers; more are added to memory one after the other.
enum { TAPS_AT_ONCE = 16 };

/// A bin has no more points along a side, however large its region is.
enum { MOST_POINTS = 1 << 20 };

/// The pixel at a place of any sign, in a row that turns back at its ends: at the middles of its last pixels, or at their edges.
INLINE dim_t folded(dim_t at, dim_t size, bool aligned) {
  if (at >= 0 && at < size) return at;
  if (size < 2) return size - 1;
  dim_t period = aligned ? 2 * size - 2 : 2 * size;
  at %= period;
  at += at < 0 ? period : 0;
  return at < size ? at : period - at - !aligned;
}

/// How many windows there are along one of the dimensions of an image N, C, spatial....
INLINE dim_t windows_along(const ints_t *shape, const ints_t *kernels, const ints_t *strides, const ints_t *pads,
                           const ints_t *dilation, dim_t i) {
  dim_t span = (kernels->at[i] - 1) * dilation->at[i] + 1;
  return (shape->at[2 + i] + pads->at[i] + pads->at[kernels->size + i] - span) / strides->at[i] + 1;
}

/// The row of the image that a tap of a row of windows lies in; -1 if that is on a pad.
INLINE dim_t line_of(dim_t row, dim_t tap, const ints_t *shape, const ints_t *kernels, const ints_t *strides,
                     const ints_t *pads, const ints_t *dilation) {
  dim_t line = 0, step = 1, rank = kernels->size;
  tap /= kernels->at[rank - 1];
  for (dim_t i = rank - 2; i >= 0; i--) {
    dim_t windows = windows_along(shape, kernels, strides, pads, dilation, i), size = shape->at[2 + i];
    dim_t at = row % windows * strides->at[i] + tap % kernels->at[i] * dilation->at[i] - pads->at[i];
    if (at < 0 || at >= size) return -1;
    line += at * step;
    step *= size;
    row /= windows;
    tap /= kernels->at[i];
  }
  return line;
}

/// Tap by tap; a row of windows adds up in a row of the image.
#define COLUMNS_TO_IMAGE(suffix, type)                                                                                          \
  INLINE void add_row_##suffix(type *restrict to, const type *restrict from, dim_t first, dim_t last, dim_t stride) {           \
    for (dim_t i = first; i < last; i++) to[i * stride] += from[i];                                                             \
  }                                                                                                                             \
                                                                                                                                \
  KERNEL void libjit_columns_to_image_##suffix(type *restrict result, const type *restrict input, const ints_t *result_shape,   \
                                               const ints_t *input_shape, const ints_t *kernels, const ints_t *strides,         \
                                               const ints_t *pads, const ints_t *dilation) {                                    \
    dim_t rank = kernels->size, pixels = count_between(result_shape, 2, 2 + rank), taps = count(kernels);                       \
    dim_t planes = result_shape->at[0] * result_shape->at[1], windows = input_shape->at[2];                                     \
    if (windows == 0) planes = 0;                                                                                               \
    for (dim_t i = 0; i < count(result_shape); i++) result[i] = 0;                                                              \
    dim_t width = result_shape->at[1 + rank], stride = strides->at[rank - 1];                                                   \
    dim_t row = windows_along(result_shape, kernels, strides, pads, dilation, rank - 1);                                        \
    for (dim_t plane = 0; plane < planes; plane++) {                                                                            \
      for (dim_t tap = 0; tap < taps; tap++) {                                                                                  \
        dim_t shift = tap % kernels->at[rank - 1] * dilation->at[rank - 1] - pads->at[rank - 1];                                \
        dim_t first = shift < 0 ? (-shift + stride - 1) / stride : 0;                                                           \
        dim_t last = shift < width ? min_dim(row, (width - shift + stride - 1) / stride) : 0;                                   \
        for (dim_t start = 0; start < windows; start += row) {                                                                  \
          dim_t line = line_of(start / row, tap, result_shape, kernels, strides, pads, dilation);                               \
          if (line < 0) continue;                                                                                               \
          add_row_##suffix(result + plane * pixels + line * width + shift, input + (plane * taps + tap) * windows + start,      \
                           first, last, stride);                                                                                \
        }                                                                                                                       \
      }                                                                                                                         \
    }                                                                                                                           \
  }

COLUMNS_TO_IMAGE(f32, float)
COLUMNS_TO_IMAGE(f64, double)
COLUMNS_TO_IMAGE(i8, int8_t)
COLUMNS_TO_IMAGE(i16, int16_t)
COLUMNS_TO_IMAGE(i32, int32_t)
COLUMNS_TO_IMAGE(i64, int64_t)
COLUMNS_TO_IMAGE(u8, uint8_t)
COLUMNS_TO_IMAGE(u16, uint16_t)
COLUMNS_TO_IMAGE(u32, uint32_t)
COLUMNS_TO_IMAGE(u64, uint64_t)

#include "as_f32.h"
#include "image.c"
#include "as_f64.h"
#include "image.c"
#else
/// The taps of a place along one dimension: pixels, -1 where there is none, and their weights.
typedef struct {
  dim_t at[4];
  T weight[4];
} OF(taps_t);

/// What a point is made of: where pixels begin in their image, and their weights.
typedef struct {
  dim_t count, at[MOST_TAPS];
  T weight[MOST_TAPS];
} OF(point_t);

/// A place outside of a range, in a range that turns back at its ends.
INLINE T OF(reflected)(T place, T low, T high) {
  T range = high - low, distance = place < low ? low - place : place - high;
  if (!(range > 0)) return low;
  T turns = OF(math_trunc)(distance / range), rest = distance - turns * range;
  bool even = turns == 2 * OF(math_floor)(turns / 2);
  return (place < low) == even ? low + rest : high - rest;
}

/// Keys (1981), of a tap at a distance of at most 1, and of at most 2.
INLINE T OF(cubic_near)(T x) { return ((T)1.25 * x - (T)2.25) * x * x + 1; }
INLINE T OF(cubic_far)(T x) { return (((T)-0.75 * x + (T)3.75) * x - 6) * x + 3; }

INLINE OF(taps_t) OF(taps_at)(T place, dim_t size, dim_t order, dim_t padding, bool aligned) {
  T low = aligned ? 0 : (T)-0.5, last = (T)(size - 1), high = last - low;
  if (order == NEAREST) place = OF(math_round)(place);
  if (padding == REFLECTION && !(place >= low && place <= high)) place = OF(reflected)(place, low, high);
  // What is farther away has the same taps, or none, and may be no integer.
  place = place > -4 ? (place < last + 4 ? place : last + 4) : -4;
  T whole = OF(math_floor)(place), rest = place - whole;
  OF(taps_t) taps = {{0}, {1}};
  if (order == LINEAR) taps = (OF(taps_t)){{0}, {1 - rest, rest}};
  if (order == CUBIC)
    taps = (OF(taps_t)){{0}, {OF(cubic_far)(rest + 1), OF(cubic_near)(rest), OF(cubic_near)(1 - rest), OF(cubic_far)(2 - rest)}};
  UNROLL for (dim_t t = 0; t <= order; t++) {
    dim_t at = (dim_t)whole - (order == CUBIC) + t;
    if (padding == ZEROS) at = at >= 0 && at < size ? at : -1;
    if (padding == BORDER) at = min_dim(max_dim(at, 0), size - 1);
    if (padding == REFLECTION) at = folded(at, size, aligned);
    taps.at[t] = at;
  }
  return taps;
}

/// The pixels around a place; its first coordinate is along the last of the spatial dimensions.
INLINE void OF(find_point)(OF(point_t) *point, const T *place, const ints_t *shape, dim_t order, dim_t padding, bool aligned) {
  dim_t rank = shape->size - 2, channels = shape->at[rank + 1], taps = order + 1;
  OF(taps_t) axes[3];
  UNROLL for (dim_t i = 0; i < 3; i++) {
    axes[i] = (OF(taps_t)){{0}, {1}};
    if (i < rank) axes[i] = OF(taps_at)(place[i], shape->at[rank - i], order, padding, aligned);
  }
  dim_t width = shape->at[rank], height = rank > 1 ? shape->at[rank - 1] : 1, found = 0;
  UNROLL for (dim_t z = 0; z < (rank > 2 ? taps : 1); z++) {
    UNROLL for (dim_t y = 0; y < (rank > 1 ? taps : 1); y++) {
      UNROLL for (dim_t x = 0; x < taps; x++) {
        if ((axes[0].at[x] | axes[1].at[y] | axes[2].at[z]) < 0) continue;
        point->at[found] = ((axes[2].at[z] * height + axes[1].at[y]) * width + axes[0].at[x]) * channels;
        point->weight[found++] = axes[0].weight[x] * (axes[1].weight[y] * axes[2].weight[z]);
      }
    }
  }
  point->count = found;
}

/// Neighbouring channels of a point. Of `taps` taps, as most points have, it is one sum.
INLINE void OF(mix)(T *restrict to, const T *restrict image, const OF(point_t) *point, dim_t channels, dim_t taps) {
  if (point->count == taps && taps <= TAPS_AT_ONCE) {
    for (dim_t c = 0; c < channels; c++) {
      T sum = point->weight[0] * image[point->at[0] + c];
      UNROLL for (dim_t t = 1; t < taps; t++) sum += point->weight[t] * image[point->at[t] + c];
      to[c] = sum;
    }
    return;
  }
  for (dim_t c = 0; c < channels; c++) to[c] = 0;
  for (dim_t t = 0; t < point->count; t++)
    for (dim_t c = 0; c < channels; c++) to[c] += point->weight[t] * image[point->at[t] + c];
}

KERNEL void OF(libjit_sample)(T *restrict result, const T *restrict input, const T *restrict places,
                              const ints_t *result_shape, const ints_t *input_shape, const ints_t *places_shape, dim_t order,
                              dim_t padding, bool aligned) {
  dim_t images = places_shape->at[0], points = places_shape->at[1], groups = places_shape->at[2], rank = places_shape->at[3];
  dim_t channels = result_shape->at[2], pixels = count_between(input_shape, 1, input_shape->size - 1), taps = order + 1;
  dim_t all = taps * (rank > 1 ? taps : 1) * (rank > 2 ? taps : 1), own = groups ? channels / groups : 0;
  OF(point_t) point;
  for (dim_t i = 0; i < images * points * groups; i++) {
    dim_t image = i / (points * groups), group = i % groups;
    OF(find_point)(&point, places + i * rank, input_shape, order, padding, aligned);
    OF(mix)(result + i * own, input + image * pixels * channels + group * own, &point, own, all);
  }
}

/// A region of an image: where its first bin begins, how large bins are, and how many points they have.
typedef struct {
  T start[2], bin[2];
  dim_t points[2];
} OF(region_t);

INLINE OF(region_t) OF(region_of)(const T *corners, const dim_t *bins, dim_t ratio, T scale, bool half_pixel) {
  OF(region_t) region;
  UNROLL for (dim_t i = 0; i < 2; i++) {
    T shift = half_pixel ? (T)0.5 : 0, start = corners[1 - i] * scale - shift, end = corners[3 - i] * scale - shift;
    T size = end - start;
    if (!half_pixel && !(size > 1)) size = 1;
    T bin = size / (T)bins[i];
    T points = OF(math_ceil)(bin);
    region.start[i] = start;
    region.bin[i] = bin;
    region.points[i] = ratio > 0 ? ratio : !(points > 0) ? 0 : points < MOST_POINTS ? (dim_t)points : MOST_POINTS;
  }
  return region;
}

/// The pixels around a point, and whether it is no farther than one pixel outside.
INLINE bool OF(find_corners)(OF(point_t) *point, T y, T x, dim_t height, dim_t width, dim_t channels) {
  if (!(y >= -1 && y <= (T)height && x >= -1 && x <= (T)width)) return false;
  T place[2] = {y > 0 ? y : 0, x > 0 ? x : 0};
  dim_t size[2] = {height, width}, low[2], high[2];
  UNROLL for (dim_t i = 0; i < 2; i++) {
    low[i] = min_dim((dim_t)place[i], size[i] - 1);
    high[i] = min_dim(low[i] + 1, size[i] - 1);
    place[i] = low[i] == size[i] - 1 ? 0 : place[i] - (T)low[i];
  }
  point->count = 4;
  UNROLL for (dim_t t = 0; t < 4; t++) {
    point->at[t] = ((t < 2 ? low[0] : high[0]) * width + (t % 2 ? high[1] : low[1])) * channels;
    point->weight[t] = (t < 2 ? 1 - place[0] : place[0]) * (t % 2 ? place[1] : 1 - place[1]);
  }
  return true;
}

INLINE T OF(larger_of)(T a, T b) { return a > b ? a : b; }

/// Adds a point to a bin, or finds the largest of its weighted pixels and what the bin has, if that is anything.
INLINE void OF(take)(T *restrict to, const T *restrict image, const OF(point_t) *point, dim_t channels, bool largest, bool any) {
  const T *w = point->weight, *a = image + point->at[0], *b = image + point->at[1], *c = image + point->at[2];
  const T *d = image + point->at[3];
  for (dim_t i = 0; i < channels; i++) {
    if (largest) {
      T most = OF(larger_of)(OF(larger_of)(w[0] * a[i], w[1] * b[i]), OF(larger_of)(w[2] * c[i], w[3] * d[i]));
      to[i] = any ? OF(larger_of)(to[i], most) : most;
    } else {
      to[i] += w[0] * a[i] + w[1] * b[i] + (w[2] * c[i] + w[3] * d[i]);
    }
  }
}

INLINE void OF(fill_bin)(T *restrict to, const T *restrict image, OF(region_t) region, dim_t row, dim_t col,
                         const ints_t *shape, bool largest) {
  dim_t height = shape->at[1], width = shape->at[2], channels = shape->at[3];
  dim_t rows = region.points[0], cols = region.points[1];
  OF(point_t) point;
  for (dim_t c = 0; c < channels; c++) to[c] = 0;
  bool any = false;
  for (dim_t i = 0; i < (cols ? rows : 0); i++) {
    T y = region.start[0] + (T)row * region.bin[0] + ((T)i + (T)0.5) * region.bin[0] / (T)rows;
    bool outside = !(y >= -1 && y <= (T)height);
    for (dim_t k = 0; k < (outside ? 1 : cols); k++) {
      T x = region.start[1] + (T)col * region.bin[1] + ((T)k + (T)0.5) * region.bin[1] / (T)cols;
      if (!outside && OF(find_corners)(&point, y, x, height, width, channels)) {
        OF(take)(to, image, &point, channels, largest, any);
      } else if (largest) {
        for (dim_t c = 0; c < channels; c++) to[c] = any ? OF(larger_of)(to[c], 0) : 0;
      }
      any = true;
    }
  }
  if (largest) return;
  T points = (T)max_dim(rows * cols, 1);
  for (dim_t c = 0; c < channels; c++) to[c] /= points;
}

KERNEL void OF(libjit_roi_align)(T *restrict result, const T *restrict input, const T *restrict regions,
                                 const int64_t *restrict images, const ints_t *result_shape, const ints_t *input_shape,
                                 const ints_t *regions_shape, const ints_t *images_shape, dim_t height, dim_t width,
                                 dim_t ratio, float scale, bool largest, bool half_pixel) {
  dim_t channels = input_shape->at[3], number = input_shape->at[0], size = count_between(input_shape, 1, 4);
  dim_t bins[2] = {height, width};
  for (dim_t r = 0; r < regions_shape->at[0]; r++) {
    OF(region_t) region = OF(region_of)(regions + r * 4, bins, ratio, (T)scale, half_pixel);
    dim_t image = images[r] < 0 ? 0 : images[r] < number ? (dim_t)images[r] : number - 1;
    for (dim_t bin = 0; bin < height * width; bin++)
      OF(fill_bin)(result + (r * height * width + bin) * channels, input + image * size, region, bin / width, bin % width,
                   input_shape, largest);
  }
}

/// The nearest integer, halves away from 0, within what an image may be as large as.
INLINE dim_t OF(pixel_at)(T x) {
  T away = x < 0 ? OF(math_ceil)(x - (T)0.5) : OF(math_floor)(x + (T)0.5);
  return !(away > -0x1p24) ? -(1 << 24) : away < 0x1p24 ? (dim_t)away : 1 << 24;
}

KERNEL void OF(libjit_roi_max_pool)(T *restrict result, const T *restrict input, const T *restrict regions,
                                    const ints_t *result_shape, const ints_t *input_shape, const ints_t *regions_shape,
                                    dim_t height, dim_t width, float scale) {
  dim_t channels = input_shape->at[3], size = count_between(input_shape, 1, 4), bins[2] = {height, width};
  for (dim_t r = 0; r < regions_shape->at[0]; r++) {
    const T *region = regions + r * 5;
    dim_t image = min_dim(max_dim(OF(pixel_at)(OF(math_trunc)(region[0])), 0), input_shape->at[0] - 1);
    for (dim_t bin = 0; bin < height * width; bin++) {
      dim_t at[2] = {bin / width, bin % width}, first[2], last[2];
      UNROLL for (dim_t i = 0; i < 2; i++) {
        dim_t start = OF(pixel_at)(region[2 - i] * (T)scale), end = OF(pixel_at)(region[4 - i] * (T)scale);
        T part = (T)max_dim(end - start + 1, 1) / (T)bins[i];
        dim_t low = (dim_t)OF(math_floor)((T)at[i] * part) + start, high = (dim_t)OF(math_ceil)((T)(at[i] + 1) * part) + start;
        first[i] = max_dim(low, 0);
        last[i] = min_dim(high, input_shape->at[1 + i]);
      }
      T *to = result + (r * height * width + bin) * channels;
      bool empty = first[0] >= last[0] || first[1] >= last[1];
      for (dim_t c = 0; c < channels; c++) to[c] = empty ? 0 : -(T)__builtin_inf();
      for (dim_t y = first[0]; y < last[0]; y++)
        for (dim_t x = first[1]; x < last[1]; x++) {
          const T *pixel = input + image * size + (y * input_shape->at[2] + x) * channels;
          for (dim_t c = 0; c < channels; c++) to[c] = pixel[c] > to[c] || pixel[c] != pixel[c] ? pixel[c] : to[c];
        }
    }
  }
}
#endif
