/// Numbers of 16 bits, which are stored and never computed with: IEEE 754's binary16 (f16), and the upper half of a
/// float (bf16). Rounded to the nearest, ties to even; branch-free, as in math.h.
#ifndef LIBJIT_HALVES_H
#define LIBJIT_HALVES_H

#include "math.h"

/// Whether processors of the variant may have instructions that multiply numbers in bf16, and one that rounds to them. They
/// are used where `libjit_bf16` says so. Those of x86-64 take the smallest floats for zeros.
#if (defined(__AVX512VNNI__) && VECTOR_BYTES == 64) || (defined(__aarch64__) && defined(__ARM_FEATURE_MATMUL_INT8))
#define BF16_PRODUCTS 1
#else
#define BF16_PRODUCTS 0
#endif

/// Around functions with such instructions.
#if !BF16_PRODUCTS
#define BEGIN_BF16
#define END_BF16
#elif defined(__x86_64__)
#define BEGIN_BF16 _Pragma("clang attribute push(__attribute__((target(\"avx512bf16\"))), apply_to = function)")
#define END_BF16 _Pragma("clang attribute pop")
#else
#define BEGIN_BF16 _Pragma("clang attribute push(__attribute__((target(\"bf16\"))), apply_to = function)")
#define END_BF16 _Pragma("clang attribute pop")
#endif

/// Whether conversions to and from binary16 are instructions.
#if defined(__F16C__) || defined(__aarch64__)
#define F16_IN_HARDWARE 1
#else
#define F16_IN_HARDWARE 0
#endif

INLINE float f32_of_bf16(bf16_t x) { return float_of_bits((uint32_t)x << 16); }

INLINE bf16_t bf16_of_f32(float x) {
#if BF16_PRODUCTS
// A double is rounded to a float first: made one with this, there is no instruction for it, but a call of a library.
#pragma clang fp contract(off)
  if (libjit_bf16) {
    union {
      __bf16 number;
      bf16_t bits;
    } both = {.number = (__bf16)x};
    return both.bits;
  }
#endif
  uint32_t bits = bits_f32(x), odd = bits >> 16 & 1;
  return x != x ? bits >> 16 | 0x40 : (bits + 0x7fff + odd) >> 16;
}

INLINE float f32_of_f16(f16_t x) {
#if F16_IN_HARDWARE
  union {
    f16_t bits;
    _Float16 number;
  } both = {.bits = x};
  return (float)both.number;
#else
  uint32_t sign = (uint32_t)(x & 0x8000) << 16, rest = x & 0x7fff;
  // Exponents differ by 112 in bias, and by another 112 at infinity and NaN; the smallest numbers are multiples of 2^-24.
  uint32_t normal = (rest << 13) + (rest >= 0x7c00 ? 224u << 23 : 112u << 23);
  uint32_t small = bits_f32((float)(int32_t)rest * 0x1p-24f);
  return float_of_bits(sign | (rest < 0x400 ? small : normal));
#endif
}

INLINE f16_t f16_of_f32(float x) {
#if F16_IN_HARDWARE
  union {
    _Float16 number;
    f16_t bits;
  } both = {.number = (_Float16)x};
  return both.bits;
#else
  uint32_t bits = bits_f32(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
  // Adding a half leaves multiples of 2^-24 in the low bits of the smallest numbers.
  uint32_t small = bits_f32(float_of_bits(rest) + 0.5f) - bits_f32(0.5f);
  uint32_t normal = (rest - (112u << 23) + 0xfff + (rest >> 13 & 1)) >> 13;
  uint32_t huge = rest > 0x7f800000 ? 0x7e00 : 0x7c00;
  return sign | (rest < 0x38800000 ? small : rest < 0x477ff000 ? normal : huge);
#endif
}

/// Not by way of a float: two roundings are another number than one.
INLINE f16_t f16_of_f64(double x) {
  uint64_t bits = bits_f64(x), rest = bits & 0x7fffffffffffffff;
  uint64_t small = bits_f64(double_of_bits(rest) + 0x1p28) - bits_f64(0x1p28);
  uint64_t normal = (rest - (1008ull << 52) + 0x1ffffffffff + (rest >> 42 & 1)) >> 42;
  uint64_t huge = rest > 0x7ff0000000000000 ? 0x7e00 : 0x7c00;
  return (bits >> 48 & 0x8000) | (rest < bits_f64(0x1p-14) ? small : rest < bits_f64(65520.0) ? normal : huge);
}

#endif
