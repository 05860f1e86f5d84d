/// Rounding to stored integers: the nearest one, halves to even, plus an offset, limited to the kind; NaN is the lowest.
///
/// The limits come first, so that what is rounded is small. Then one instruction makes the nearest integer of it, where
/// there is such; elsewhere, adding 1.5 * 2^23 leaves the integer in the low bits. LLVM is told the limits of the result as
/// well: where its steps are counted at once, nothing is left of its 8 bits, nor of the offset.
#ifndef LIBJIT_SATURATE_H
#define LIBJIT_SATURATE_H

#include "floats.h"

/// Integers are rounded already. An offset is one of the kind's numbers.
INLINE int32_t limit(int32_t x, int32_t offset, int32_t lowest, int32_t highest) {
  int32_t low = lowest - offset, high = highest - offset;
  int32_t limited = x > low ? x : low;
  return (limited < high ? limited : high) + offset;
}

/// Bits of 1.5 * 2^23.
#define ROUNDING_BITS 0x4b400000

/// The nearest integer, halves to even, of a small number.
INLINE int32_t nearest(float x) {
#if defined(__SSE4_1__) || defined(__aarch64__)
  return (int32_t)math_round_f32(x);
#else
  return (int32_t)bits_f32(x + 0x1.8p23f) - ROUNDING_BITS;
#endif
}

INLINE int32_t saturate(float x, float offset, int32_t lowest, int32_t highest) {
  if (!IN_FLOATS) return limit(soft_rounded(bits_f32(x)), soft_rounded(bits_f32(offset)), lowest, highest);
  float low = (float)lowest - offset, high = (float)highest - offset;
  float limited = x > low ? x : low;
  limited = limited < high ? limited : high;
  int32_t steps = nearest(limited);
  __builtin_assume(steps >= lowest - (int32_t)offset);
  __builtin_assume(steps <= highest - (int32_t)offset);
  return steps + (int32_t)offset;
}

INLINE int8_t saturate_i8(float x, float offset) { return (int8_t)saturate(x, offset, INT8_MIN, INT8_MAX); }
INLINE uint8_t saturate_u8(float x, float offset) { return (uint8_t)saturate(x, offset, 0, UINT8_MAX); }
INLINE int16_t saturate_i16(float x, float offset) { return (int16_t)saturate(x, offset, INT16_MIN, INT16_MAX); }
INLINE uint16_t saturate_u16(float x, float offset) { return (uint16_t)saturate(x, offset, 0, UINT16_MAX); }

INLINE int8_t limit_i8(int32_t x, int32_t offset) { return (int8_t)limit(x, offset, INT8_MIN, INT8_MAX); }
INLINE uint8_t limit_u8(int32_t x, int32_t offset) { return (uint8_t)limit(x, offset, 0, UINT8_MAX); }
INLINE int16_t limit_i16(int32_t x, int32_t offset) { return (int16_t)limit(x, offset, INT16_MIN, INT16_MAX); }
INLINE uint16_t limit_u16(int32_t x, int32_t offset) { return (uint16_t)limit(x, offset, 0, UINT16_MAX); }
INLINE int32_t limit_i32(int32_t x, int32_t offset) { return __builtin_elementwise_add_sat(x, offset); }

/// Integers of 32 bits: in double, which holds all of them.
INLINE int32_t saturate_i32(float x, float offset) {
  double sum = (double)math_round_f32(x) + (double)offset;
  return !(sum > INT32_MIN) ? INT32_MIN : sum >= INT32_MAX ? INT32_MAX : (int32_t)sum;
}

#endif
