/// Mathematics for kernels: branch-free polynomials, so that a loop that calls them is vectorised and needs no libm.
///
/// math_<function>_<f32|f64>; special values (infinities, NaN, signed zeros, subnormals, pow's table) are those of IEEE 754 and
/// numpy. The largest error of every function is stated above it, as measured; tests/libjit/test_math.py holds it to it.
///
/// * Choices are selects, never branches: both sides are computed.
/// * Every polynomial is a minimax fit of its own, made with the Remez exchange in 60 digits and then rounded.
/// * The code is right with and without contraction of a * b + c to a fused multiply-add. Where a rounding error is computed
///   exactly, contraction is switched off; it is never needed for the result to be right.
/// * A float is never cast to an integer: that is undefined for NaN. Integers are read from the bits after adding
///   1.5 * 2^(digits - 1), which leaves a rounded number in the low bits.
#ifndef LIBJIT_MATH_H
#define LIBJIT_MATH_H

#include "libjit.h"

/// Where rounding to an integer is one instruction. Elsewhere the intrinsic would become a call of libm.
#if defined(__SSE4_1__) || defined(__aarch64__) || defined(__wasm__) || defined(__VSX__)
#define ROUNDING_IN_HARDWARE 1
#else
#define ROUNDING_IN_HARDWARE 0
#endif

/// Whether an operation takes one of two constants by a mask as easily as it takes one.
#if defined(__AVX512F__)
#define CHOICES_ARE_CHEAP 1
#else
#define CHOICES_ARE_CHEAP 0
#endif

/// Which formats the processor has square roots for; set from outside to test what is done without.
#ifndef SQRT_F32_IN_HARDWARE
#define SQRT_F32_IN_HARDWARE F32_IN_HARDWARE
#endif

#ifndef SQRT_F64_IN_HARDWARE
#define SQRT_F64_IN_HARDWARE F64_IN_HARDWARE
#endif

/// Whether the processor multiplies and adds doubles with one rounding.
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__VSX__) || defined(__riscv)
#define FMA_F64_IN_HARDWARE SQRT_F64_IN_HARDWARE
#else
#define FMA_F64_IN_HARDWARE 0
#endif

INLINE uint32_t bits_f32(float x) {
  union {
    float number;
    uint32_t bits;
  } both = {.number = x};
  return both.bits;
}

INLINE float float_of_bits(uint32_t bits) {
  union {
    uint32_t bits;
    float number;
  } both = {.bits = bits};
  return both.number;
}

INLINE uint64_t bits_f64(double x) {
  union {
    double number;
    uint64_t bits;
  } both = {.number = x};
  return both.bits;
}

INLINE double double_of_bits(uint64_t bits) {
  union {
    uint64_t bits;
    double number;
  } both = {.bits = bits};
  return both.number;
}

/// The integer part of the square root of square * 2^(2 * digits - 64), one binary digit at a time, by subtraction.
INLINE uint64_t root_digits(uint64_t square, int digits) {
  uint64_t root = 0, rest = 0;
  for (int i = 0; i < digits; i++) {
    rest = rest << 2 | square >> 62;
    square <<= 2;
    uint64_t trial = root << 2 | 1;
    uint64_t fits = rest >= trial;
    rest -= trial & (0 - fits);
    root = root << 1 | fits;
  }
  return root;
}

#include "math_f64.h"
// Some of these compute in double precision.
#include "math_f32.h"

#endif
