/// The kernels of the operators for time series. libjit's headers are there: see libjit/README.md for the rules.
#include "kernels_gen.h"

#define RECORD(kind, type)                                                                         \
  KERNEL void series_record_##kind(type *result, const type *input, const ints_t *result_shape,    \
                                   const ints_t *input_shape, bool reverse) {                      \
    dim_t rank = input_shape->size, length = input_shape->at[rank - 1];                            \
    dim_t rows = count_between(input_shape, 0, rank - 1);                                          \
    for (dim_t row = 0; row < rows; row++) {                                                       \
      const type *from = input + row * length;                                                     \
      type *to = result + row * length;                                                            \
      for (dim_t step = 0; step < length; step++) {                                                \
        dim_t i = reverse ? length - 1 - step : step;                                              \
        type record = step ? to[reverse ? i + 1 : i - 1] : from[i];                                \
        to[i] = from[i] > record || from[i] != from[i] ? from[i] : record;                         \
      }                                                                                            \
    }                                                                                              \
  }

RECORD(f32, float)
RECORD(f64, double)
RECORD(i32, int32_t)
RECORD(i64, int64_t)
