/// The kernels of the fused backend. libjit's headers are there: see libjit/README.md for the rules.
#include "kernels_gen.h"
#include "math.h"

KERNEL void fused_scaled_softmax_f32(float *result, const float *input, const ints_t *result_shape,
                                     const ints_t *input_shape, float scale) {
  dim_t rank = input_shape->size, columns = input_shape->at[rank - 1];
  dim_t rows = count_between(input_shape, 0, rank - 1);
  for (dim_t row = 0; row < rows; row++) {
    const float *from = input + row * columns;
    float *to = result + row * columns;
    float largest = -__builtin_inff(), sum = 0;
    for (dim_t i = 0; i < columns; i++) {
      float scaled = from[i] * scale;
      if (scaled > largest || scaled != scaled) largest = scaled;
    }
    for (dim_t i = 0; i < columns; i++) {
      to[i] = math_exp_f32(from[i] * scale - largest);
      sum += to[i];
    }
    for (dim_t i = 0; i < columns; i++) to[i] /= sum;
  }
}

KERNEL void fused_hard_swish_f32(float *result, const float *input, const ints_t *result_shape,
                                 const ints_t *input_shape) {
  for (dim_t i = 0; i < count(input_shape); i++) {
    float gate = input[i] / 6 + 0.5f;
    gate = gate < 0 ? 0 : gate > 1 ? 1 : gate;
    result[i] = input[i] * gate;
  }
}
