/// The nearest integer to an integer times a float: what a conversion to f32, a product in f32 and rounding give, to the bit.
///
/// Processors without floating point compute it with integers. Both roundings before the last one matter only where the
/// product is next to the middle between two integers: where it is not, one product of 32 bits and one shift are enough.
#ifndef LIBJIT_SCALE_ROUNDED_H
#define LIBJIT_SCALE_ROUNDED_H

#include "saturate.h"

/// Step by step.
OUT_OF_LINE int32_t scale_rounded_exactly(int32_t steps, uint32_t scale) {
  return soft_rounded(soft_product(soft_of_i32(steps), scale));
}

/// `scale` has the bits of a float. NaN gives the lowest result.
INLINE int32_t scale_rounded(int32_t steps, int32_t scale) {
#if F32_IN_HARDWARE
  float product = product_f32((float)steps, float_of_bits((uint32_t)scale));
  return saturate(product, 0.0f, -ROUNDED_LIMIT, ROUNDED_LIMIT);
#else
  uint32_t sign = (uint32_t)(steps >> 31), size = ((uint32_t)steps ^ sign) - sign;
  uint32_t up = size >> 16 ? 0 : 8, shift = 126 + up - ((uint32_t)scale >> 23);  // 24 digits, if there are fewer
  size <<= up;
  if (shift - 1 > 30 || size >> 24) return scale_rounded_exactly(steps, (uint32_t)scale);
  // size is a float, and the product at most 2^24 in units of 2^-shift, so that rounding it to a float moves it by half a unit.
  uint32_t half = 1u << (shift - 1), sum = high_product(size, (uint32_t)scale << 8 | 1u << 31) + half;
  if (((sum + 1) & (2 * half - 1)) < 2) return scale_rounded_exactly(steps, (uint32_t)scale);
  return (int32_t)((sum >> shift ^ sign) - sign);
#endif
}

#endif
