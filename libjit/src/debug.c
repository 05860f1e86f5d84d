/// Looking at values.
#include "kernels_gen.h"
#include "libjit.h"

#define LARGEST 3.402823466e+38f

/// Elements that are looked at side by side; as constant as the length of the loops over them, which vectorise.
enum { ABREAST = 4 * LANES };

/// The bin of what is not finite.
enum { NOWHERE = -1 };

/// The largest integer that is not larger than x, where both fit.
INLINE int32_t floor_of(double x) {
  int32_t whole = (int32_t)x;
  return whole - (whole > x);
}

/// The smallest and the largest of the finite elements.
INLINE void range_of(float *range, const float *input, dim_t n) {
  float low[ABREAST], high[ABREAST];
  for (int k = 0; k < ABREAST; k++) {
    low[k] = __builtin_inff();
    high[k] = -__builtin_inff();
  }
  for (dim_t at = 0; at < n; at += ABREAST) {
    if (at + ABREAST > n) at = max_dim(0, n - ABREAST);  // some are compared twice
    for (int k = 0; k < min_dim(ABREAST, n); k++) {
      float x = input[at + k];
      bool finite = __builtin_fabsf(x) <= LARGEST;
      low[k] = (finite & (x < low[k])) ? x : low[k];
      high[k] = (finite & (x > high[k])) ? x : high[k];
    }
  }
  for (int k = 1; k < ABREAST; k++) {
    low[0] = low[k] < low[0] ? low[k] : low[0];
    high[0] = high[k] > high[0] ? high[k] : high[0];
  }
  range[0] = low[0] + 0.0f;  // of both zeros the positive one
  range[1] = high[0] + 0.0f;
}

/// Where in the histogram an element is, in double precision: no product with a power of two is rounded there.
KERNEL void libjit_quantization_profile_f32_i64_i64(int64_t *result, float *range, int64_t *grid, const float *input,
                                                    const ints_t *result_shape, const ints_t *range_shape,
                                                    const ints_t *grid_shape, const ints_t *input_shape, dim_t bins) {
  dim_t n = count(input_shape);
  range_of(range, input, n);
  double low = range[0] < 0 ? range[0] : 0, high = range[1] > 0 ? range[1] : 0;
  double width = 0x1p-126, per_width = 0x1p126;
  int64_t exponent = -126;
  while (high >= width * bins || -low > width * bins ||
         floor_of(high * per_width) - floor_of(low * per_width) >= bins) {
    width *= 2;
    per_width /= 2;
    exponent++;
  }
  int32_t first = floor_of(low * per_width);
  int64_t nans = 0, infinities = 0;
  for (dim_t i = 0; i < bins; i++) result[i] = 0;
  for (dim_t at = 0; at < n; at += ABREAST) {
    int32_t bin[ABREAST];
    for (int k = 0; k < min_dim(ABREAST, n - at); k++) {
      float x = input[at + k];
      bool finite = __builtin_fabsf(x) <= LARGEST;
      nans += x != x;
      infinities += !finite & (x == x);
      bin[k] = finite ? floor_of((finite ? x : 0.0f) * per_width) - first : NOWHERE;
    }
    for (int k = 0; k < min_dim(ABREAST, n - at); k++) {
      if (bin[k] != NOWHERE) result[bin[k]]++;
    }
  }
  grid[0] = exponent;
  grid[1] = first;
  grid[2] = nans;
  grid[3] = infinities;
}
