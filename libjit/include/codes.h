/// Floats of at most 8 bits, which are stored and never computed with. Rounded to the nearest, ties to even; branch-free,
/// as in math.h. A code is a sign, an exponent above a bias, and some digits; the smallest are multiples of one number.
#ifndef LIBJIT_CODES_H
#define LIBJIT_CODES_H

#include "math.h"

typedef uint8_t f8e4m3fn_t;
typedef uint8_t f8e4m3fnuz_t;
typedef uint8_t f8e5m2_t;
typedef uint8_t f8e5m2fnuz_t;
typedef uint8_t f8e8m0_t;
typedef uint8_t f6e2m3_t;
typedef uint8_t f6e3m2_t;
typedef uint8_t f4e2m1_t;

#define NAN_BITS 0x7fc00000u
#define INFINITY_BITS 0x7f800000u

/// The bits of the number that a code without its sign stands for.
INLINE uint32_t decoded(uint32_t code, int digits, int bias) {
  float step = float_of_bits((uint32_t)(128 - bias - digits) << 23);
  uint32_t small = bits_f32((float)(int32_t)code * step);
  uint32_t normal = (code << (23 - digits)) + ((uint32_t)(127 - bias) << 23);
  return code < 1u << digits ? small : normal;
}

/// The code nearest to the number with these bits, no sign among them; above all codes for what is beyond the range.
INLINE uint32_t encoded(uint32_t bits, int digits, int bias) {
  // Adding a number whose last digit is worth one step leaves the steps in the low bits of the smallest.
  float place = float_of_bits((uint32_t)(151 - bias - digits) << 23);
  uint32_t small = bits_f32(float_of_bits(bits) + place) - bits_f32(place);
  int rest = 23 - digits;
  uint32_t normal = (bits - ((uint32_t)(127 - bias) << 23) + (1u << (rest - 1)) - 1 + (bits >> rest & 1)) >> rest;
  return bits < (uint32_t)(128 - bias) << 23 ? small : normal;
}

INLINE float f32_of_f8e4m3fn(f8e4m3fn_t x) {
  uint32_t rest = x & 0x7f, bits = rest == 0x7f ? NAN_BITS : decoded(rest, 3, 7);
  return float_of_bits((uint32_t)(x & 0x80) << 24 | bits);
}

INLINE f8e4m3fn_t f8e4m3fn_of_f32(float x) {
  uint32_t bits = bits_f32(x), code = encoded(bits & 0x7fffffff, 3, 7);
  return (f8e4m3fn_t)((bits >> 24 & 0x80) | (code > 0x7e ? 0x7f : code));
}

INLINE float f32_of_f8e5m2(f8e5m2_t x) {
  uint32_t rest = x & 0x7f, bits = rest > 0x7c ? NAN_BITS : rest == 0x7c ? INFINITY_BITS : decoded(rest, 2, 15);
  return float_of_bits((uint32_t)(x & 0x80) << 24 | bits);
}

INLINE f8e5m2_t f8e5m2_of_f32(float x) {
  uint32_t bits = bits_f32(x), rest = bits & 0x7fffffff, code = encoded(rest, 2, 15);
  return (f8e5m2_t)((bits >> 24 & 0x80) | (rest > INFINITY_BITS ? 0x7e : code > 0x7c ? 0x7c : code));
}

/// Without a negative zero, whose code is that of the only NaN.
INLINE float f32_of_fnuz(uint8_t x, int digits, int bias) {
  uint32_t number = (uint32_t)(x & 0x80) << 24 | decoded(x & 0x7f, digits, bias);
  return float_of_bits(x == 0x80 ? NAN_BITS : number);
}

INLINE uint8_t fnuz_of_f32(float x, int digits, int bias) {
  uint32_t bits = bits_f32(x), code = encoded(bits & 0x7fffffff, digits, bias);
  return (uint8_t)(code > 0x7f ? 0x80 : code ? (bits >> 24 & 0x80) | code : 0);
}

INLINE float f32_of_f8e4m3fnuz(f8e4m3fnuz_t x) { return f32_of_fnuz(x, 3, 8); }
INLINE f8e4m3fnuz_t f8e4m3fnuz_of_f32(float x) { return fnuz_of_f32(x, 3, 8); }
INLINE float f32_of_f8e5m2fnuz(f8e5m2fnuz_t x) { return f32_of_fnuz(x, 2, 16); }
INLINE f8e5m2fnuz_t f8e5m2fnuz_of_f32(float x) { return fnuz_of_f32(x, 2, 16); }

/// Powers of two: the exponent of a float. The first is a float without one.
INLINE float f32_of_f8e8m0(f8e8m0_t x) {
  return float_of_bits(x == 0xff ? NAN_BITS : x == 0 ? 0x400000 : (uint32_t)x << 23);
}

/// Ties go up. NaN is what is not between the first and the last, as ONNX has it: nothing beyond is near enough.
INLINE f8e8m0_t f8e8m0_of_f32(float x) {
  uint32_t bits = bits_f32(x), code = bits < 0x600000 ? 0 : (bits + 0x400000) >> 23;
  return (f8e8m0_t)(bits < 0x400000 || bits > 0x7f000000 ? 0xff : code);
}

/// Codes of fewer bits than a byte, the sign the highest; what is above is not looked at. NaN, which has none, becomes 0.
INLINE float f32_of_few(uint8_t x, int bits, int digits, int bias) {
  uint32_t sign = 1u << (bits - 1);
  return float_of_bits((x & sign) << (32 - bits) | decoded(x & (sign - 1), digits, bias));
}

INLINE uint8_t few_of_f32(float x, int bits, int digits, int bias) {
  uint32_t number = bits_f32(x), code = encoded(number & 0x7fffffff, digits, bias), sign = 1u << (bits - 1);
  return (uint8_t)(x != x ? 0 : (number >> (32 - bits) & sign) | (code >= sign ? sign - 1 : code));
}

INLINE float f32_of_f6e2m3(f6e2m3_t x) { return f32_of_few(x, 6, 3, 1); }
INLINE f6e2m3_t f6e2m3_of_f32(float x) { return few_of_f32(x, 6, 3, 1); }
INLINE float f32_of_f6e3m2(f6e3m2_t x) { return f32_of_few(x, 6, 2, 3); }
INLINE f6e3m2_t f6e3m2_of_f32(float x) { return few_of_f32(x, 6, 2, 3); }
INLINE float f32_of_f4e2m1(f4e2m1_t x) { return f32_of_few(x, 4, 1, 1); }
INLINE f4e2m1_t f4e2m1_of_f32(float x) { return few_of_f32(x, 4, 1, 1); }

#endif
