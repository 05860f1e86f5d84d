/// The arithmetic of f32 that quantized networks need, as IEEE 754 defines it: the processor's, or made of integers where it has none.
///
/// The compiler's library has functions for it as well. These here are in the object, so that a network of integers needs
/// nothing else. Where code is to be small, networks that call the library anyway call it for all.
#ifndef LIBJIT_FLOATS_H
#define LIBJIT_FLOATS_H

#include "digits.h"
#include "math.h"

#define INFINITY_BITS 0x7f800000u
#define NAN_BITS 0x7fc00000u
#define SIGN_BIT 0x80000000u

/// A number that is not 0, as digits * 2^(exponent - 157): the first of 31 digits is 1, and 24 of them are those of the float.
typedef struct {
  int32_t exponent;
  uint32_t digits;
} number_t;

INLINE number_t number_of(uint32_t bits) {
  int32_t exponent = (int32_t)(bits >> 23 & 0xff);
  uint32_t fraction = bits & 0x7fffff;
  if (exponent) return (number_t){exponent, (fraction | 1u << 23) << 7};
  uint32_t zeros = leading_zeros(fraction) - 1;
  return (number_t){8 - (int32_t)zeros, fraction << zeros};
}

/// The float nearest to a number, with a sign. The last digit stands for all that is below.
INLINE uint32_t float_bits(uint32_t sign, int32_t exponent, uint32_t digits) {
  if (exponent < 1) {
    digits = shift_sticky(digits, (uint32_t)(1 - exponent));
    exponent = 1;
  }
  if (exponent > 254) return sign | INFINITY_BITS;
  return sign | (((uint32_t)(exponent - 1) << 23) + (round_digits(digits, 7) >> 7));  // a carry goes into the exponent
}

OUT_OF_LINE uint32_t soft_of_i32(int32_t x) {
  uint32_t sign = (uint32_t)x & SIGN_BIT, size = sign ? -(uint32_t)x : (uint32_t)x;
  if (!size) return 0;
  uint32_t zeros = leading_zeros(size);
  return float_bits(sign, 158 - (int32_t)zeros, shift_sticky(size << zeros, 1));
}

/// Whether the exponents are of normal numbers: no zeros, infinities or NaNs.
INLINE bool are_normal(uint32_t x, uint32_t y) { return (x >> 23) - 1 < 254 && (y >> 23) - 1 < 254; }

/// A sum that is not one of two normal numbers, |x| >= |y|; true, and sets x, if it is not to be computed.
INLINE bool soft_special_sum(uint32_t *x, uint32_t y) {
  uint32_t size = *x & ~SIGN_BIT;
  if (size >= INFINITY_BITS) {
    if (size > INFINITY_BITS || y == (*x ^ SIGN_BIT)) *x = NAN_BITS;
    return true;
  }
  if (y & ~SIGN_BIT) return false;
  if (!size) *x &= y;
  return true;
}

OUT_OF_LINE uint32_t soft_sum(uint32_t x, uint32_t y) {
  if ((x & ~SIGN_BIT) < (y & ~SIGN_BIT)) {
    uint32_t other = x;
    x = y;
    y = other;
  }
  uint32_t sign = x & SIGN_BIT;
  if (!are_normal(x & ~SIGN_BIT, y & ~SIGN_BIT) && soft_special_sum(&x, y)) return x;
  number_t a = number_of(x), b = number_of(y);
  uint32_t below = shift_sticky(b.digits, (uint32_t)(a.exponent - b.exponent));
  if (!((x ^ y) & SIGN_BIT)) {
    uint32_t digits = a.digits + below, carry = digits >> 31;
    return float_bits(sign, a.exponent + (int32_t)carry, digits >> carry | (digits & carry));
  }
  uint32_t digits = a.digits - below;
  if (!digits) return 0;
  uint32_t zeros = digits >> 30 ? 0 : leading_zeros(digits) - 1;
  return float_bits(sign, a.exponent - (int32_t)zeros, digits << zeros);
}

OUT_OF_LINE uint32_t soft_special_product(uint32_t sign, uint32_t x_size, uint32_t y_size) {
  bool infinite = x_size == INFINITY_BITS || y_size == INFINITY_BITS, zero = !x_size || !y_size;
  if (x_size > INFINITY_BITS || y_size > INFINITY_BITS || (infinite && zero)) return NAN_BITS;
  return infinite ? sign | INFINITY_BITS : sign;
}

OUT_OF_LINE uint32_t soft_product(uint32_t x, uint32_t y) {
  uint32_t sign = (x ^ y) & SIGN_BIT, x_size = x & ~SIGN_BIT, y_size = y & ~SIGN_BIT;
  if (x_size - 1 >= INFINITY_BITS - 1 || y_size - 1 >= INFINITY_BITS - 1) return soft_special_product(sign, x_size, y_size);
  number_t a = number_of(x), b = number_of(y);
  uint32_t product = high_product(a.digits << 1, b.digits << 1) | (a.digits * b.digits << 2 != 0);
  uint32_t carry = product >> 31;
  return float_bits(sign, a.exponent + b.exponent - 127 + (int32_t)carry, product >> carry | (product & carry));
}

/// Digits of a quotient that are found at a time: as many as a division leaves room for, or one, by subtraction.
#if defined(__ARM_FEATURE_IDIV) || defined(__riscv_div)
#define QUOTIENT_DIGITS 7
#define QUOTIENT(X, Y) ((X) / (Y))
#else
#define QUOTIENT_DIGITS 1
#define QUOTIENT(X, Y) ((X) >= (Y))
#endif
#define QUOTIENT_ROUNDS ((25 + QUOTIENT_DIGITS - 1) / QUOTIENT_DIGITS)

/// 1 <= lhs / rhs < 2 for numbers of 24 and 25 digits, in 31 digits of which the last stands for all that is below.
INLINE uint32_t quotient_digits(uint32_t lhs, uint32_t rhs) {
  uint32_t digits = 1, rest = lhs - rhs;
  ROLLED for (int i = 0; i < QUOTIENT_ROUNDS; i++) {
    rest <<= QUOTIENT_DIGITS;
    uint32_t next = QUOTIENT(rest, rhs);
    rest -= next * rhs;
    digits = digits << QUOTIENT_DIGITS | next;
  }
  return digits << (30 - QUOTIENT_ROUNDS * QUOTIENT_DIGITS) | (rest != 0);
}

OUT_OF_LINE uint32_t soft_quotient(uint32_t x, uint32_t y) {
  uint32_t sign = (x ^ y) & SIGN_BIT, x_size = x & ~SIGN_BIT, y_size = y & ~SIGN_BIT;
  if (x_size > INFINITY_BITS || y_size > INFINITY_BITS || x_size + y_size == 0) return NAN_BITS;
  if (x_size == INFINITY_BITS) return y_size == INFINITY_BITS ? NAN_BITS : sign | INFINITY_BITS;
  if (!y_size) return sign | INFINITY_BITS;
  if (!x_size || y_size == INFINITY_BITS) return sign;
  number_t a = number_of(x), b = number_of(y);
  uint32_t less = a.digits < b.digits, lhs = a.digits >> 7 << less;
  return float_bits(sign, a.exponent - b.exponent + 127 - (int32_t)less, quotient_digits(lhs, b.digits >> 7));
}

/// x < y; no NaN is less than anything.
INLINE bool soft_less(uint32_t x, uint32_t y) {
  uint32_t x_size = x & ~SIGN_BIT, y_size = y & ~SIGN_BIT;
  if (x_size > INFINITY_BITS || y_size > INFINITY_BITS) return false;
  int32_t x_place = x & SIGN_BIT ? -(int32_t)x_size : (int32_t)x_size, y_place = y & SIGN_BIT ? -(int32_t)y_size : (int32_t)y_size;
  return x_place < y_place;
}

/// Rounding results are limited to this on either side: more than an integer of 16 bits and its offset have.
#define ROUNDED_LIMIT (1 << 22)

/// The nearest integer, halves to even; NaN gives the lowest.
OUT_OF_LINE int32_t soft_rounded(uint32_t x) {
  uint32_t size = x & ~SIGN_BIT, shift = 157 - (size >> 23);
  if (size > INFINITY_BITS) return -ROUNDED_LIMIT;
  if (shift > 31 && (int32_t)shift > 0) return 0;
  uint32_t digits = (size << 7 & 0x3fffffff) | 1u << 30;
  uint32_t rounded = (int32_t)shift < 8 ? ROUNDED_LIMIT : round_digits(digits, shift) >> shift;
  rounded = rounded < ROUNDED_LIMIT ? rounded : ROUNDED_LIMIT;
  return x & SIGN_BIT ? -(int32_t)rounded : (int32_t)rounded;
}

#if F32_IN_HARDWARE
#define IN_FLOATS true
#else
#define IN_FLOATS libjit_calls_library
#endif

INLINE float sum_f32(float x, float y) { return IN_FLOATS ? x + y : float_of_bits(soft_sum(bits_f32(x), bits_f32(y))); }
INLINE double sum_f64(double x, double y) { return x + y; }

INLINE float difference_f32(float x, float y) {
  return IN_FLOATS ? x - y : float_of_bits(soft_sum(bits_f32(x), bits_f32(y) ^ SIGN_BIT));
}
INLINE double difference_f64(double x, double y) { return x - y; }

/// Rounded by itself: an addition that follows does not become one step with it.
INLINE float product_f32(float x, float y) {
#pragma clang fp contract(off)
  return IN_FLOATS ? x * y : float_of_bits(soft_product(bits_f32(x), bits_f32(y)));
}

/// Rounded by itself: a product before it does not become one step with it, whatever LLVM thinks of that.
INLINE float plus_f32(float x, float y) {
#pragma clang fp contract(off)
  return IN_FLOATS ? x + y : float_of_bits(soft_sum(bits_f32(x), bits_f32(y)));
}

INLINE float times_f32(float x, float y) {
  return IN_FLOATS ? x * y : float_of_bits(soft_product(bits_f32(x), bits_f32(y)));
}
INLINE double times_f64(double x, double y) { return x * y; }

INLINE float quotient_f32(float x, float y) {
  return IN_FLOATS ? x / y : float_of_bits(soft_quotient(bits_f32(x), bits_f32(y)));
}
INLINE double quotient_f64(double x, double y) { return x / y; }

INLINE float float_of_i32(int32_t x) { return IN_FLOATS ? (float)x : float_of_bits(soft_of_i32(x)); }

INLINE bool greater_f32(float x, float y) { return IN_FLOATS ? x > y : soft_less(bits_f32(y), bits_f32(x)); }
INLINE bool greater_f64(double x, double y) { return x > y; }

INLINE bool less_f32(float x, float y) { return IN_FLOATS ? x < y : soft_less(bits_f32(x), bits_f32(y)); }
INLINE bool less_f64(double x, double y) { return x < y; }

INLINE bool is_nan_f32(float x) { return IN_FLOATS ? x != x : (bits_f32(x) & ~SIGN_BIT) > INFINITY_BITS; }
INLINE bool is_nan_f64(double x) { return x != x; }

#endif
