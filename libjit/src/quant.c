/// Functions of stored integers.
#include "kernels_gen.h"
#include "libjit.h"

/// One of 256 results, of the input's width, for each stored integer. The table begins with that of the lowest one.
#define LOOKUP(SUFFIX, T, LOWEST)                                                                                      \
  KERNEL void libjit_lookup_table_##SUFFIX(T *restrict result, const T *restrict input, const T *restrict table,      \
                                           const ints_t *result_shape, const ints_t *input_shape,                      \
                                           const ints_t *table_shape) {                                                \
    dim_t size = count(input_shape);                                                                                   \
    for (dim_t i = 0; i < size; i++) result[i] = table[input[i] - LOWEST];                                             \
  }

LOOKUP(i8, int8_t, INT8_MIN)
LOOKUP(u8, uint8_t, 0)
