/// Rows that are given the mean 0 and the variance 1 (Ba et al. 2016), or the mean square 1 (Zhang and Sennrich 2019).
/// A row is read three times, for its mean, its variance and its results, and is in the first-level cache but for the first time.
#include "kernels_gen.h"
#include "libjit.h"
#include "math.h"
#include "walk.h"

/// Vectors that are summed side by side, to hide the latency of one addition.
#define ACCUMULATORS 4

/// So many steps of these vectors are summed by themselves, so that no sum sees many elements.
#define STEPS 64

/// The sum of `n` elements less `mean`, or of their squares.
INLINE float sum_of_row(const float *input, dim_t n, float mean, bool squares) {
  vf total = {0};
  dim_t i = 0;
  while (i + LANES <= n) {
    vf sums[ACCUMULATORS] = {{0}};
    dim_t end = min_dim(n, i + STEPS * ACCUMULATORS * LANES);
    for (; i + ACCUMULATORS * LANES <= end; i += ACCUMULATORS * LANES)
      UNROLL for (int k = 0; k < ACCUMULATORS; k++) {
        vf x = *(const vf *)(input + i + k * LANES) - mean;
        sums[k] += squares ? x * x : x;
      }
    for (; i + LANES <= end; i += LANES) {
      vf x = *(const vf *)(input + i) - mean;
      sums[0] += squares ? x * x : x;
    }
    UNROLL for (int k = 0; k < ACCUMULATORS; k++) total += sums[k];
  }
  UNROLL for (int half = LANES / 2; half > 0; half /= 2) {
    vf others = total;
    UNROLL for (int lane = 0; lane < half; lane++) others[lane] = total[lane + half];
    total += others;
  }
  float sum = total[0];
  for (; i < n; i++) {
    float x = input[i] - mean;
    sum += squares ? x * x : x;
  }
  return sum;
}

/// A unit is a row of the last dimension. Its results go to the epilogue a vector at a time, which stays in a register.
KERNEL void libjit_cpu_standardize_f32(float *result, const float *input, const ints_t *result_shape,
                                       const ints_t *input_shape, const ints_t *result_strides,
                                       const ints_t *input_strides, float epsilon, bool centred, dim_t first_unit,
                                       dim_t last_unit, const tiles_t *tiles, epilogue_t epilogue, const void *env) {
  dim_t n = input_shape->at[input_shape->size - 1], rest = n % LANES;
  walk_t walk = walk_over(input_shape, input_strides, input_strides);
  walk.loop[MAX_RANK].size = 1;
  walk = merge_loops(walk);
  for (dim_t unit = first_unit; unit < last_unit; unit++) {
    const float *row = input + locate(&walk, unit).from;
    float mean = centred ? sum_of_row(row, n, 0, false) / (float)n : 0;
    float variance = sum_of_row(row, n, mean, true) / (float)n;
    float factor = 1 / math_sqrt_f32(variance + epsilon);
    for (dim_t c = 0; c + LANES <= n; c += LANES) {
      vf tile = (*(const vf *)(row + c) - mean) * factor;
      epilogue(env, &tile, LANES, unit, c, 1, LANES);
    }
    if (rest == 0) continue;
    float tile[LANES];
    for (dim_t c = 0; c < rest; c++) tile[c] = (row[n - rest + c] - mean) * factor;
    epilogue(env, tile, LANES, unit, n - rest, 1, rest);
  }
}
