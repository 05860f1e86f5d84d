/// What every kernel shares: the dimension type, constant lists, vector width, and the epilogue.
/// The ABI is explained on one page in libjit/README.md.
#ifndef LIBJIT_H
#define LIBJIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// A dimension, offset or count: as wide as a pointer, signed so that `position - pad` needs no cast.
typedef intptr_t dim_t;
#define DIM_MAX INTPTR_MAX

/// Numbers of 16 bits as they are stored: see halves.h.
typedef uint16_t f16_t;
typedef uint16_t bf16_t;

/// A shape or a list attribute. A constant global at the call, so its loads fold away; only the walks of products, which
/// all layers share, read it when they run.
typedef struct {
  dim_t size;
  dim_t at[16];
} ints_t;

/// Finishes and stores a tile of a product; see "Epilogues" in libjit/README.md.
/// Element (r, c) of the tile is tile[r * ld + c]: that of row row + r and column col + c of the result, whose last
/// dimension is a row.
typedef void (*epilogue_t)(const void *env, const void *tile, dim_t ld, dim_t row, dim_t col, dim_t rows, dim_t cols);

/// The inner loops of one product; see tile.h.
typedef struct tiles tiles_t;

/// Bytes of a vector; the Python side knows them as the variant's `vector_bytes`. Without vector instructions it is one
/// float, so that every tile is made of scalars.
#ifndef VECTOR_BYTES
#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__) || (defined(__riscv_v_min_vlen) && __riscv_v_min_vlen >= 256)
#define VECTOR_BYTES 32
#elif defined(__SSE2__) || defined(__ARM_NEON) || defined(__wasm_simd128__) || defined(__VSX__) || defined(__riscv_vector)
#define VECTOR_BYTES 16
#else
#define VECTOR_BYTES 4
#endif
#endif

/// The same of a vector of doubles, which is one double where no instruction is about several.
#if VECTOR_BYTES < 8 || (defined(__ARM_NEON) && !defined(__aarch64__))
#define DOUBLE_VECTOR_BYTES 8
#else
#define DOUBLE_VECTOR_BYTES VECTOR_BYTES
#endif

/// Elements of a vector.
#define LANES (VECTOR_BYTES / 4)
#define DOUBLE_LANES (DOUBLE_VECTOR_BYTES / 8)

/// Whether there are tiles of floats in vectors of half as many: for processors that compute whole ones in halves.
#define HALF_TILES (VECTOR_BYTES == 64)

/// Vectors that may lie at any element's address.
typedef float vf __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
#if HALF_TILES
typedef float half_vf __attribute__((vector_size(VECTOR_BYTES / 2), aligned(4), may_alias));
#endif
typedef double vd __attribute__((vector_size(DOUBLE_VECTOR_BYTES), aligned(8), may_alias));
typedef int32_t vi __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));

/// Of an array of sums: no vector of it lies in two lines of the cache.
#define ALIGNED __attribute__((aligned(VECTOR_BYTES < 8 ? 8 : VECTOR_BYTES)))

/// Which formats the processor computes with; set from outside to test what is done without. Elsewhere each operation is a call.
#ifndef F32_IN_HARDWARE
#if defined(__arm__)
#define F32_IN_HARDWARE (__ARM_FP & 4)
#define F64_IN_HARDWARE (__ARM_FP & 8)
#elif defined(__riscv)
#define F32_IN_HARDWARE (__riscv_flen >= 32)
#define F64_IN_HARDWARE (__riscv_flen >= 64)
#else
#define F32_IN_HARDWARE 1
#define F64_IN_HARDWARE 1
#endif
#endif

/// Kernels are inlined into the specialised function that calls them with constants.
#define KERNEL __attribute__((always_inline))
#define INLINE static inline __attribute__((always_inline))
/// Simplified by itself, and inlined only where its kernel is: what many kernels call, such as what looks for the best loops of
/// a walk, takes the time of one. Whoever compiles kernels as ordinary functions may say that it is not to be inlined.
#ifndef LATE
#define LATE static inline
#endif
/// What is not worth its room in every place that it is needed in.
#define OUT_OF_LINE static __attribute__((noinline))
#define UNROLL _Pragma("clang loop unroll(full)")
#define ROLLED _Pragma("clang loop unroll(disable)")

/// Whether code is to be small rather than fast. Whoever links the library with a network defines it as a constant, so
/// that nothing is left of the way that is not taken; this is for who does not.
#ifndef LIBJIT_SMALL
#define LIBJIT_SMALL false
#endif
__attribute__((weak)) const bool libjit_small = LIBJIT_SMALL;
/// Whether small code computes in floats by calls of the compiler's library, where the processor cannot, all that it could
/// compute by itself.
__attribute__((weak)) const bool libjit_calls_library = LIBJIT_SMALL;
/// Whether the processor multiplies numbers in bf16 and rounds to them, and is to: without being asked, no network does.
__attribute__((weak)) const bool libjit_bf16 = false;

/// Number of elements of a shape.
INLINE dim_t count(const ints_t *shape) {
  dim_t n = 1;
  for (dim_t i = 0; i < shape->size; i++) n *= shape->at[i];
  return n;
}

/// Product of the dimensions first <= i < last.
INLINE dim_t count_between(const ints_t *shape, dim_t first, dim_t last) {
  dim_t n = 1;
  for (dim_t i = first; i < last; i++) n *= shape->at[i];
  return n;
}

/// Sum of a list.
INLINE dim_t sum(const ints_t *list) {
  dim_t n = 0;
  for (dim_t i = 0; i < list->size; i++) n += list->at[i];
  return n;
}

INLINE dim_t min_dim(dim_t a, dim_t b) { return a < b ? a : b; }
INLINE dim_t max_dim(dim_t a, dim_t b) { return a > b ? a : b; }

#endif
