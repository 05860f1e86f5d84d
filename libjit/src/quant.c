/// Functions of stored integers.
#include "kernels_gen.h"
#include "libjit.h"

/// One of 256 results for each stored integer. The table begins with that of the lowest one.
#define LOOKUP(RESULT, T, INPUT, X, LOWEST)                                                                            \
  KERNEL void libjit_lookup_table_##RESULT##_##INPUT(T *restrict result, const X *restrict input,                      \
                                                     const T *restrict table, const ints_t *result_shape,              \
                                                     const ints_t *input_shape, const ints_t *table_shape) {           \
    dim_t size = count(input_shape);                                                                                   \
    for (dim_t i = 0; i < size; i++) result[i] = table[input[i] - LOWEST];                                             \
  }

#define LOOKUPS(RESULT, T)                                                                                             \
  LOOKUP(RESULT, T, i8, int8_t, INT8_MIN)                                                                              \
  LOOKUP(RESULT, T, u8, uint8_t, 0)

LOOKUPS(i8, int8_t)
LOOKUPS(u8, uint8_t)
LOOKUPS(i32, int32_t)
LOOKUPS(f32, float)
