/// Binary digits in integers: what arithmetic on floats is made of where no instruction is about floats.
#ifndef LIBJIT_DIGITS_H
#define LIBJIT_DIGITS_H

#include "libjit.h"

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

/// The zeros above the first one of bits that are not 0: by halves, where the processor has no instruction for it.
#ifdef __ARM_FEATURE_CLZ
INLINE uint32_t leading_zeros(uint32_t bits) { return (uint32_t)__builtin_clz(bits); }
#else
OUT_OF_LINE uint32_t leading_zeros(uint32_t bits) {
  uint32_t count = 0;
  UNROLL for (uint32_t width = 16; width; width >>= 1) {
    if (bits >> (32 - width)) continue;
    count += width;
    bits <<= width;
  }
  return count;
}
#endif

/// Rounds bits to a multiple of 2^digits, halves to even.
INLINE uint32_t round_digits(uint32_t bits, uint32_t digits) {
  return (bits + (1u << (digits - 1)) - 1 + (bits >> digits & 1)) >> digits << digits;
}

/// Shifts right; the last digit is set if any that is lost was.
INLINE uint32_t shift_sticky(uint32_t bits, uint32_t digits) {
  if (digits > 31) return bits != 0;
  return bits >> digits | (bits << (31 - digits) << 1 != 0);
}

#endif
