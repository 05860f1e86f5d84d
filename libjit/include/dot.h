/// One step of the inner loops of products, by kind of element: what it reads, and how that is multiplied.
///
/// A step multiplies D neighbouring elements of the input by as many weights for every lane, and adds all of it to the
/// lane's sum. Floats are one element. 8-bit integers are four, a *word*: their weights lie together for each lane, and
/// there are processors with an instruction for just that. Others have one for two products of 16 bits, so that a word
/// is taken apart into its even and its odd bytes; the rest multiplies byte by byte. All of them give the same sums.
/// Elements of bf16 are two, which are a word as well: the upper halves of floats, which others are taken apart into.
///
/// PARTS_<kind> says into how many parts, each a vector, words and weights are taken apart. For each kind,
///
///     broadcast_<kind>(parts, from)       D elements of the input, in every lane
///     load_weights_<kind>(parts, from)    the weights of a vector of sums
///     add_products_<kind>(sum, x, weight) the sum and the products of one part
///
/// Where MATRICES_<kind> says so, two steps of two pixels and two lanes are one: `add_matrix_<kind>`.
#ifndef LIBJIT_DOT_H
#define LIBJIT_DOT_H

#include "halves.h"
#include "libjit.h"

#ifdef __ARM_NEON
#include <arm_neon.h>
#endif

/// A vector X in every lane of type TYPE.
#define SPLAT(X, TYPE) ((X) - (TYPE){})

/// sum + x * y, rounded once where the target can. LLVM joins the two by itself, but not where it takes both together to
/// be slower: on 32-bit Arm it only has chains of sums in mind, and a tile has none.
#if defined(__ARM_NEON) && defined(__ARM_FEATURE_FMA)
#define MULTIPLY_ADD(SUM, X, Y) __builtin_elementwise_fma(X, Y, SUM)
#else
#define MULTIPLY_ADD(SUM, X, Y) ((SUM) + (X) * (Y))
#endif

#define FLOATS(SUFFIX, T, V)                                                                                           \
  INLINE void broadcast_##SUFFIX(V parts[1], const T *from) { parts[0] = SPLAT(*from, V); }                            \
  INLINE void load_weights_##SUFFIX(V parts[1], const T *from) { parts[0] = *(const V *)from; }                        \
  INLINE V add_products_##SUFFIX(V sum, V x, V weight) { return MULTIPLY_ADD(sum, x, weight); }

#define PARTS_f32 1
#define PARTS_f64 1
FLOATS(f32, float, vf)
FLOATS(f64, double, vd)
#if HALF_TILES
#define PARTS_f32_half 1
FLOATS(f32_half, float, half_vf)
#endif

/// The bytes of the words of a vector, and two such bytes side by side as numbers of 16 bits.
typedef uint8_t bytes_t __attribute__((vector_size(VECTOR_BYTES)));
typedef int8_t signed_bytes_t __attribute__((vector_size(VECTOR_BYTES)));
typedef int16_t pairs_t __attribute__((vector_size(VECTOR_BYTES)));
typedef uint16_t unsigned_pairs_t __attribute__((vector_size(VECTOR_BYTES)));

/// Four elements of the input, which may lie anywhere.
typedef int32_t word_at_t __attribute__((aligned(1), may_alias));

INLINE vi broadcast_word(const void *from) { return SPLAT(*(const word_at_t *)from, vi); }

// ---------------------------------------------------------------------------------- two products of halves and a sum

#if BF16_PRODUCTS && defined(__x86_64__)
typedef __bf16 halves_t __attribute__((vector_size(VECTOR_BYTES)));
#define PARTS_bf16 1
BEGIN_BF16
INLINE void broadcast_bf16(vf parts[1], const bf16_t *from) { parts[0] = (vf)broadcast_word(from); }
INLINE void load_weights_bf16(vf parts[1], const bf16_t *from) { parts[0] = (vf)*(const vi *)from; }
INLINE vf add_products_bf16(vf sum, vf x, vf weight) {
  return (vf)__builtin_ia32_dpbf16ps_512(sum, (halves_t)x, (halves_t)weight);
}
END_BF16
#elif BF16_PRODUCTS
#define PARTS_bf16 1
BEGIN_BF16
INLINE void broadcast_bf16(vf parts[1], const bf16_t *from) { parts[0] = (vf)broadcast_word(from); }
INLINE void load_weights_bf16(vf parts[1], const bf16_t *from) { parts[0] = (vf)*(const vi *)from; }
INLINE vf add_products_bf16(vf sum, vf x, vf weight) {
  return (vf)vbfdotq_f32((float32x4_t)sum, (bfloat16x8_t)x, (bfloat16x8_t)weight);
}

/// Two pixels by two channels, four neighbours in depth each: 16 products and four sums in one instruction.
#define MATRICES_bf16 1
INLINE vf add_matrix_bf16(vf sums, vf pixels, vf weights) {
  return (vf)vbfmmlaq_f32((float32x4_t)sums, (bfloat16x8_t)pixels, (bfloat16x8_t)weights);
}
END_BF16
#else
#define PARTS_bf16 2
INLINE void widen_pairs(vf parts[2], vi pairs) {
  parts[0] = (vf)(pairs << 16);
  parts[1] = (vf)(pairs >> 16 << 16);
}
INLINE void broadcast_bf16(vf parts[2], const bf16_t *from) { widen_pairs(parts, broadcast_word(from)); }
INLINE void load_weights_bf16(vf parts[2], const bf16_t *from) { widen_pairs(parts, *(const vi *)from); }
INLINE vf add_products_bf16(vf sum, vf x, vf weight) { return MULTIPLY_ADD(sum, x, weight); }
#endif
#ifndef MATRICES_bf16
#define MATRICES_bf16 0
#endif

BEGIN_BF16
typedef uint16_t half_lanes_t __attribute__((vector_size(VECTOR_BYTES / 2), aligned(2), may_alias));

/// A vector rounded to bf16.
INLINE half_lanes_t bf16_of_lanes(vf x) {
#if BF16_PRODUCTS
  typedef __bf16 numbers_t __attribute__((vector_size(VECTOR_BYTES / 2)));
  if (libjit_bf16) return (half_lanes_t)__builtin_convertvector(x, numbers_t);
#endif
  half_lanes_t rounded;
  for (int i = 0; i < LANES; i++) rounded[i] = bf16_of_f32(x[i]);
  return rounded;
}

INLINE void store_lanes_bf16(bf16_t *to, vf x) { *(half_lanes_t *)to = bf16_of_lanes(x); }

/// Words of each lane's numbers, rounded: `second` is in the upper half.
INLINE vi words_of_lanes(vf first, vf second) {
  vi low = __builtin_convertvector(bf16_of_lanes(first), vi), high = __builtin_convertvector(bf16_of_lanes(second), vi);
  return low | high << 16;
}
END_BF16

// ------------------------------------------------------------------- four products and a sum, in one instruction

#if defined(__AVX512VNNI__) && VECTOR_BYTES == 64
#define DOT_u8(SUM, X, WEIGHT) (vi)__builtin_ia32_vpdpbusd512(SUM, X, WEIGHT)
#elif defined(__AVXVNNI__) && VECTOR_BYTES == 32
#define DOT_u8(SUM, X, WEIGHT) (vi)__builtin_ia32_vpdpbusd256(SUM, X, WEIGHT)
#elif defined(__VSX__) && VECTOR_BYTES == 16
#define DOT_u8(SUM, X, WEIGHT) (vi)__builtin_altivec_vmsummbm((__vector signed char)(WEIGHT), (__vector unsigned char)(X), SUM)
#elif defined(__ARM_FEATURE_DOTPROD) && defined(__aarch64__)
#define DOT_i8(SUM, X, WEIGHT) (vi)vdotq_s32((int32x4_t)(SUM), (int8x16_t)(WEIGHT), (int8x16_t)(X))
#ifdef __ARM_FEATURE_MATMUL_INT8
#define DOT_u8(SUM, X, WEIGHT) (vi)vusdotq_s32((int32x4_t)(SUM), (uint8x16_t)(X), (int8x16_t)(WEIGHT))
#endif
#endif

#define DOT(SUFFIX)                                                                                                    \
  INLINE void broadcast_##SUFFIX(vi parts[1], const void *from) { parts[0] = broadcast_word(from); }                   \
  INLINE void load_weights_##SUFFIX(vi parts[1], const int8_t *from) { parts[0] = *(const vi *)from; }                 \
  INLINE vi add_products_##SUFFIX(vi sum, vi x, vi weight) { return DOT_##SUFFIX(sum, x, weight); }

#if defined(__ARM_FEATURE_MATMUL_INT8) && defined(__aarch64__)
/// Two pixels by two channels, eight neighbours in depth each: 32 products and four sums in one instruction.
#define MATRICES_i8 1
#define MATRICES_u8 1
INLINE vi add_matrix_i8(vi sums, vi pixels, vi weights) {
  return (vi)vmmlaq_s32((int32x4_t)sums, (int8x16_t)pixels, (int8x16_t)weights);
}
INLINE vi add_matrix_u8(vi sums, vi pixels, vi weights) {
  return (vi)vusmmlaq_s32((int32x4_t)sums, (uint8x16_t)pixels, (int8x16_t)weights);
}
#else
#define MATRICES_i8 0
#define MATRICES_u8 0
#endif

// -------------------------------------------------------------------------------------- two products and a sum

/// sum + the products of both numbers of 16 bits in each lane. One factor is a byte with a sign, the other a byte.
#if VECTOR_BYTES == 64 && defined(__AVX512BW__)
#define ADD_PAIRS(SUM, X, Y) ((SUM) + (vi)__builtin_ia32_pmaddwd512(X, Y))
#elif VECTOR_BYTES == 32 && defined(__AVX2__)
#define ADD_PAIRS(SUM, X, Y) ((SUM) + (vi)__builtin_ia32_pmaddwd256(X, Y))
#elif VECTOR_BYTES == 16 && defined(__SSE2__)
#define ADD_PAIRS(SUM, X, Y) ((SUM) + (vi)__builtin_ia32_pmaddwd128(X, Y))
#elif VECTOR_BYTES == 16 && defined(__ARM_NEON)
#define ADD_PAIRS(SUM, X, Y) (vi)vpadalq_s16((int32x4_t)(SUM), (int16x8_t)((X) * (Y)))
#elif VECTOR_BYTES == 16 && defined(__wasm_simd128__)
#define ADD_PAIRS(SUM, X, Y) ((SUM) + (vi)__builtin_wasm_dot_s_i32x4_i16x8(X, Y))
#elif VECTOR_BYTES == 16 && defined(__VSX__)
#define ADD_PAIRS(SUM, X, Y) (vi)__builtin_altivec_vmsumshm((__vector short)(X), (__vector short)(Y), SUM)
#elif VECTOR_BYTES == 4 && defined(__ARM_FEATURE_DSP)
#define ADD_PAIRS(SUM, X, Y) ((vi){__builtin_arm_smlad(((vi)(X))[0], ((vi)(Y))[0], (SUM)[0])})
#endif

#define PAIRS(SUFFIX, EVEN, ODD)                                                                                       \
  INLINE void broadcast_##SUFFIX(vi parts[2], const void *from) {                                                      \
    vi word = broadcast_word(from);                                                                                    \
    parts[0] = EVEN(word);                                                                                             \
    parts[1] = ODD(word);                                                                                              \
  }                                                                                                                    \
  INLINE void load_weights_##SUFFIX(vi parts[2], const int8_t *from) {                                                 \
    vi words = *(const vi *)from;                                                                                      \
    parts[0] = EVEN_SIGNED(words);                                                                                     \
    parts[1] = ODD_SIGNED(words);                                                                                      \
  }                                                                                                                    \
  INLINE vi add_products_##SUFFIX(vi sum, vi x, vi weight) { return ADD_PAIRS(sum, (pairs_t)x, (pairs_t)weight); }

#if VECTOR_BYTES == 4 && defined(__ARM_FEATURE_DSP)
#define ROTATED(X) __builtin_rotateright32((X)[0], 8)
#define EVEN_SIGNED(X) ((vi){__builtin_arm_sxtb16((X)[0])})
#define ODD_SIGNED(X) ((vi){__builtin_arm_sxtb16(ROTATED(X))})
#define EVEN_UNSIGNED(X) ((vi){__builtin_arm_uxtb16((X)[0])})
#define ODD_UNSIGNED(X) ((vi){__builtin_arm_uxtb16(ROTATED(X))})
#else
#define EVEN_SIGNED(X) (vi)(((pairs_t)(X) << 8) >> 8)
#define ODD_SIGNED(X) (vi)((pairs_t)(X) >> 8)
#define EVEN_UNSIGNED(X) (vi)((unsigned_pairs_t)(X) & 0xFF)
#define ODD_UNSIGNED(X) (vi)((unsigned_pairs_t)(X) >> 8)
#endif

// ---------------------------------------------------------------------------------------- one product and a sum

/// Without vectors, or where nobody adds neighbours up: each byte in a lane of its own, of 32 bits.
#define SINGLES(SUFFIX, T)                                                                                             \
  INLINE void broadcast_##SUFFIX(vi parts[4], const T *from) {                                                         \
    UNROLL for (int i = 0; i < 4; i++) parts[i] = SPLAT((int32_t)from[i], vi);                                         \
  }                                                                                                                    \
  INLINE void load_weights_##SUFFIX(vi parts[4], const int8_t *from) {                                                 \
    UNROLL for (int i = 0; i < 4; i++)                                                                                 \
      parts[i] = LANES == 1 ? (vi){} + from[i] : *(const vi *)from << (24 - 8 * i) >> 24;                              \
  }                                                                                                                    \
  INLINE vi add_products_##SUFFIX(vi sum, vi x, vi weight) { return sum + x * weight; }

#if defined(DOT_i8)
#define PARTS_i8 1
DOT(i8)
#elif defined(ADD_PAIRS)
#define PARTS_i8 2
PAIRS(i8, EVEN_SIGNED, ODD_SIGNED)
#else
#define PARTS_i8 4
SINGLES(i8, int8_t)
#endif

#if defined(DOT_u8)
#define PARTS_u8 1
DOT(u8)
#elif defined(ADD_PAIRS)
#define PARTS_u8 2
PAIRS(u8, EVEN_UNSIGNED, ODD_UNSIGNED)
#else
#define PARTS_u8 4
SINGLES(u8, uint8_t)
#endif

// -------------------------------------------------------------------------- two products of any numbers of 16 bits

#if defined(__AVX512VNNI__) && VECTOR_BYTES == 64
#define ADD_WORDS(SUM, X, Y) (vi)__builtin_ia32_vpdpwssd512(SUM, X, Y)
#elif defined(__AVXVNNI__) && VECTOR_BYTES == 32
#define ADD_WORDS(SUM, X, Y) (vi)__builtin_ia32_vpdpwssd256(SUM, X, Y)
#elif defined(__x86_64__) && defined(ADD_PAIRS)
#define ADD_WORDS(SUM, X, Y) ADD_PAIRS(SUM, (pairs_t)(X), (pairs_t)(Y))
#endif

#ifdef ADD_WORDS
#define PARTS_i16 1
INLINE void broadcast_i16(vi parts[1], const int16_t *from) { parts[0] = broadcast_word(from); }
INLINE void load_weights_i16(vi parts[1], const int16_t *from) { parts[0] = *(const vi *)from; }
INLINE vi add_products_i16(vi sum, vi x, vi weight) { return ADD_WORDS(sum, x, weight); }
#else
#define PARTS_i16 2
INLINE void widen_words(vi parts[2], vi words) {
  parts[0] = words << 16 >> 16;
  parts[1] = words >> 16;
}
INLINE void broadcast_i16(vi parts[2], const int16_t *from) { widen_words(parts, broadcast_word(from)); }
INLINE void load_weights_i16(vi parts[2], const int16_t *from) { widen_words(parts, *(const vi *)from); }
INLINE vi add_products_i16(vi sum, vi x, vi weight) { return sum + x * weight; }
#endif

#endif
