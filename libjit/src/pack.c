/// Packs the right sides of products; elements of 4 and of 8 bytes: this file reads itself once for each of these.
#ifndef T
#include "kernels_gen.h"
#include "libjit.h"
#include "transpose.h"

/// Where matrix number `matrix` of a stack begins.
INLINE dim_t matrix_offset(dim_t matrix, const ints_t *shape, const ints_t *strides) {
  dim_t offset = 0;
  for (dim_t i = shape->size - 3; i >= 0; i--) {
    offset += matrix % shape->at[i] * strides->at[i];
    matrix /= shape->at[i];
  }
  return offset;
}

/// Packs matrices K x N whose neighbours of a column lie together, `DOT` of them, as words of 32 bits (see libjit/README.md).
#define PACK_WORDS(T, SUFFIX, DOT)                                                                                     \
  KERNEL void libjit_cpu_pack_matrix_##SUFFIX(T *result, const T *input, const ints_t *result_shape,                   \
                                              const ints_t *input_shape, const ints_t *input_strides, dim_t block) {   \
    dim_t rank = input_shape->size, depth = input_shape->at[rank - 2], cols = input_shape->at[rank - 1];               \
    dim_t matrices = count_between(input_shape, 0, rank - 2);                                                          \
    dim_t row_step = input_strides->at[rank - 2], col_step = input_strides->at[rank - 1];                              \
    for (dim_t matrix = 0; matrix < matrices; matrix++) {                                                              \
      const T *from = input + matrix_offset(matrix, input_shape, input_strides);                                       \
      for (dim_t first = 0; first < cols; first += block) {                                                            \
        dim_t valid = min_dim(block, cols - first);                                                                    \
        for (dim_t k = 0; k < depth; k += DOT, result += DOT * block) {                                                \
          const T *rows = from + k * row_step + first * col_step;                                                      \
          dim_t whole = depth - k < DOT ? 0 : valid;                                                                   \
          for (dim_t c = 0; c < whole; c++) {                                                                          \
            for (dim_t i = 0; i < DOT; i++) result[DOT * c + i] = rows[i * row_step + c * col_step];                   \
          }                                                                                                            \
          for (dim_t c = whole; c < block; c++) {                                                                      \
            for (dim_t i = 0; i < DOT; i++)                                                                            \
              result[DOT * c + i] = c < valid && k + i < depth ? rows[i * row_step + c * col_step] : 0;                \
          }                                                                                                            \
        }                                                                                                              \
      }                                                                                                                \
    }                                                                                                                  \
  }

PACK_WORDS(uint8_t, x8, 4)
PACK_WORDS(uint16_t, x16, 2)

#define T uint32_t
#define OF(NAME) NAME##_x32
#include "pack.c"
#undef T
#undef OF
#define T uint64_t
#define OF(NAME) NAME##_x64
#include "pack.c"
#else

/// One block: `valid` columns, `col_step` apart, of `depth` elements, `row_step` apart; zeros in the other columns.
INLINE void OF(pack_block)(T *result, const T *from, dim_t depth, dim_t valid, dim_t block, dim_t row_step,
                       dim_t col_step) {
  dim_t rest = (block - valid) * (dim_t)sizeof(T);
  if (col_step == 1) {
    for (dim_t k = 0; k < depth; k++) {
      __builtin_memcpy(result + k * block, from + k * row_step, valid * sizeof(T));
      __builtin_memset(result + k * block + valid, 0, rest);
    }
    return;
  }
  dim_t whole_rows = row_step == 1 ? depth / 4 * 4 : 0, whole_cols = valid / 4 * 4;
  for (dim_t k = 0; k < whole_rows; k += 4) {
#pragma clang loop unroll(disable)
    for (dim_t c = 0; c < whole_cols; c += 4)
      OF(transpose_4x4)(result + k * block + c, from + k + c * col_step, col_step, block);
  }
  for (dim_t k = 0; k < depth; k++) {
    dim_t done = k < whole_rows ? whole_cols : 0;
#pragma clang loop unroll(disable)
    for (dim_t c = done; c < valid; c++) result[k * block + c] = from[k * row_step + c * col_step];
    __builtin_memset(result + k * block + valid, 0, rest);
  }
}

/// Packs matrices K x N into blocks of columns (see libjit/README.md). Matrices that were transposed by their strides
/// are read along their rows.
KERNEL void OF(libjit_cpu_pack_matrix)(T *result, const T *input, const ints_t *result_shape,
                                       const ints_t *input_shape, const ints_t *input_strides, dim_t block) {
  dim_t rank = input_shape->size, depth = input_shape->at[rank - 2], cols = input_shape->at[rank - 1];
  dim_t matrices = count_between(input_shape, 0, rank - 2);
  for (dim_t matrix = 0; matrix < matrices; matrix++) {
    const T *from = input + matrix_offset(matrix, input_shape, input_strides);
    for (dim_t col = 0; col < cols; col += block) {
      OF(pack_block)(result, from + col * input_strides->at[rank - 1], depth, min_dim(block, cols - col), block,
                 input_strides->at[rank - 2], input_strides->at[rank - 1]);
      result += depth * block;
    }
  }
}

#endif
