/// The nearest integer to an integer times a float: what a conversion to f32, a product in f32 and rounding give, to the bit.
///
/// Processors without floating point compute it with integers. Both roundings before the last one matter only where the
/// product is next to the middle between two integers: where it is not, one product of 32 bits and one shift are enough.
#ifndef LIBJIT_SCALE_ROUNDED_H
#define LIBJIT_SCALE_ROUNDED_H

#include "saturate.h"

/// Results are limited to this on either side. It is more than an integer of 16 bits and its offset have.
#define SCALED_LIMIT (1 << 22)

/// Whether the processor has products of 64 bits; set from outside to test what is done without. Cortex-M0 has none.
#ifndef LONG_PRODUCT_IN_HARDWARE
#if defined(__ARM_ARCH_6M__) || defined(__ARM_ARCH_8M_BASE__)
#define LONG_PRODUCT_IN_HARDWARE 0
#else
#define LONG_PRODUCT_IN_HARDWARE 1
#endif
#endif

/// The upper half of lhs * rhs: without products of 64 bits, of four with 32.
INLINE uint32_t high_product(uint32_t lhs, uint32_t rhs) {
#if LONG_PRODUCT_IN_HARDWARE
  return (uint32_t)((uint64_t)lhs * rhs >> 32);
#else
  uint32_t low = lhs & 0xffff, high = lhs >> 16, rhs_low = rhs & 0xffff, rhs_high = rhs >> 16;
  uint32_t middle = low * rhs_high + (low * rhs_low >> 16);
  uint32_t other = high * rhs_low + (middle & 0xffff);
  return high * rhs_high + (middle >> 16) + (other >> 16);
#endif
}

/// The zeros above the first one of bits that are not 0: by halves, as the processors that need this have no instruction for it.
INLINE uint32_t leading_zeros(uint32_t bits) {
#ifdef __ARM_FEATURE_CLZ
  return (uint32_t)__builtin_clz(bits);
#else
  uint32_t count = 0;
  UNROLL for (uint32_t width = 16; width; width >>= 1) {
    uint32_t zeros = bits >> (32 - width) ? 0 : width;
    count += zeros;
    bits <<= zeros;
  }
  return count;
#endif
}

/// Rounds bits to a multiple of 2^digits, halves to even.
INLINE uint32_t round_digits(uint32_t bits, uint32_t digits) {
  return (bits + (1u << (digits - 1)) - 1 + (bits >> digits & 1)) >> digits << digits;
}

/// |steps * scale| rounded three times, for steps that are not 0 and a scale that is a normal number.
INLINE uint32_t scaled_size(uint32_t steps, uint32_t scale) {
  uint32_t zeros = leading_zeros(steps), size = round_digits(steps << zeros, 8);  // to the 24 bits of a float
  if (!size) {
    size = 1u << 31;
    zeros--;
  }
  uint32_t factor = scale << 8 | 1u << 31, low = size * factor;
  uint32_t product = high_product(size, factor) | (low != 0);  // what is below matters only in being there
  uint32_t shift = 126 + zeros - (scale >> 23 & 0xff);
  if (product >> 31) {
    product = product >> 1 | (product & 1);
    shift--;
  }
  product = round_digits(product, 7);
  if ((int32_t)shift < 8) return SCALED_LIMIT;
  return shift > 31 ? 0 : round_digits(product, shift) >> shift;
}

/// Of any scale, with a sign; not inlined, as it is rarely needed.
static __attribute__((noinline)) int32_t scale_rounded_exactly(int32_t steps, uint32_t scale) {
  uint32_t exponent = scale >> 23 & 0xff, fraction = scale << 9, size = 0;
  if (exponent == 0xff && (fraction || !steps)) return -SCALED_LIMIT;  // no number
  if (exponent == 0xff) size = SCALED_LIMIT;
  else if (exponent && steps) size = scaled_size(steps < 0 ? -(uint32_t)steps : (uint32_t)steps, scale);
  size = size < SCALED_LIMIT ? size : SCALED_LIMIT;
  return (steps < 0) != (scale >> 31) ? -(int32_t)size : (int32_t)size;
}

/// `scale` has the bits of a float. NaN gives the lowest result.
INLINE int32_t scale_rounded(int32_t steps, int32_t scale) {
#if F32_IN_HARDWARE
  float product = product_f32((float)steps, float_of_bits((uint32_t)scale));
  return saturate(product, 0.0f, -SCALED_LIMIT, SCALED_LIMIT);
#else
  uint32_t sign = (uint32_t)(steps >> 31), size = ((uint32_t)steps ^ sign) - sign;
  uint32_t shift = 126 - ((uint32_t)scale >> 23);
  if (shift - 1 > 30 || size >> 24) return scale_rounded_exactly(steps, (uint32_t)scale);
  // size is a float, and the product at most 2^24 in units of 2^-shift, so that rounding it to a float moves it by half a unit.
  uint32_t half = 1u << (shift - 1), sum = high_product(size, (uint32_t)scale << 8 | 1u << 31) + half;
  if (((sum + 1) & (2 * half - 1)) < 2) return scale_rounded_exactly(steps, (uint32_t)scale);
  return (int32_t)((sum >> shift ^ sign) - sign);
#endif
}

#endif
