/// Transposes small squares of a matrix in registers, of elements of 4 and of 8 bytes.
#ifndef LIBJIT_TRANSPOSE_H
#define LIBJIT_TRANSPOSE_H

#include "libjit.h"

#define TRANSPOSE(SUFFIX, T)                                                                                           \
  typedef T v4_##SUFFIX __attribute__((vector_size(4 * sizeof(T)), aligned(sizeof(T)), may_alias));                    \
  /** Four rows of four elements, `step` apart, as columns `block` apart. */                                           \
  INLINE void transpose_4x4_##SUFFIX(T *to, const T *from, dim_t step, dim_t block) {                                  \
    v4_##SUFFIX a = *(const v4_##SUFFIX *)from, b = *(const v4_##SUFFIX *)(from + step);                               \
    v4_##SUFFIX c = *(const v4_##SUFFIX *)(from + 2 * step), d = *(const v4_##SUFFIX *)(from + 3 * step);              \
    v4_##SUFFIX ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7); \
    v4_##SUFFIX cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7); \
    *(v4_##SUFFIX *)to = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);                                          \
    *(v4_##SUFFIX *)(to + block) = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);                                \
    *(v4_##SUFFIX *)(to + 2 * block) = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);                          \
    *(v4_##SUFFIX *)(to + 3 * block) = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);                          \
  }

TRANSPOSE(x32, uint32_t)
TRANSPOSE(x64, uint64_t)

#endif
