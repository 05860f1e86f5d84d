/// Normalisation along one dimension. Softmax may run in place, so every block is read as a whole before it is written.
/// All is of floats and of doubles: this file reads itself once for each.
#ifndef T
#include "kernels_gen.h"
#include "libjit.h"
#include "math.h"
#include "walk.h"

/// Elements that go through a function at once: their loop has a constant length and no aliases, so it vectorises.
#define BLOCK 64

/// exp(x) for x of at most 0, to 1e-6 times -x, in little code; 0 where that is below 1e-37.
INLINE float exp_below_f32(float x) { return x < -86.0f ? 0.0f : exp2_short_f32(x * 0x1.715476p+0f); }
INLINE double exp_below_f64(double x) { return math_exp_f64(x); }

/// All loops but that along `axis`.
LATE plane_t plane_around(const ints_t *shape, const ints_t *result_strides, const ints_t *input_strides, dim_t axis) {
  walk_t walk = walk_over(shape, result_strides, input_strides);
  UNROLL for (dim_t i = 0; i <= MAX_RANK; i++)
      walk.loop[i].size = i == MAX_RANK - (shape->size - 1 - axis) ? 1 : walk.loop[i].size;
  return plane_of(walk, ANY_LOOP);
}

#include "as_f32.h"
#include "norm.c"
#include "as_f64.h"
#include "norm.c"
#else
/// x / s^beta; the exponents that networks use need no pow.
INLINE T OF(divide_by_power)(T x, T s, T beta) {
  if (beta == (T)0.5) return x / OF(math_sqrt)(s);
  if (beta == (T)0.75) return x / (OF(math_sqrt)(s) * OF(math_sqrt)(OF(math_sqrt)(s)));
  return x / OF(math_pow)(s, beta);
}

/// Channels [first, last) of one pixel, whose windows reach beyond the channels there are.
INLINE void OF(normalize_edge)(T *restrict result, const T *restrict input, dim_t channels, dim_t first, dim_t last,
                               dim_t size, T factor, T beta, T k) {
  for (dim_t c = first; c < last; c++) {
    dim_t from = c - (size - 1) / 2, sum_first = max_dim(from, 0), sum_last = min_dim(from + size, channels);
    T sum = 0;
    for (dim_t i = sum_first; i < sum_last; i++) sum += input[i] * input[i];
    result[c] = OF(divide_by_power)(input[c], k + factor * sum, beta);
  }
}

/// input / (k + alpha / size * sum of squares of the `size` channels around)^beta; channels are the last dimension.
KERNEL void OF(libjit_local_response_normalization)(T *result, const T *input, const ints_t *result_shape,
                                                    const ints_t *input_shape, dim_t size, float alpha, float beta,
                                                    float k) {
  dim_t channels = input_shape->at[input_shape->size - 1];
  dim_t pixels = count_between(input_shape, 0, input_shape->size - 1);
  dim_t before = min_dim((size - 1) / 2, channels);
  dim_t inside = max_dim(channels - size / 2, before);  // here ends what has its whole window
  T factor = (T)alpha / (T)size;
  for (dim_t pixel = 0; pixel < pixels; pixel++) {
    const T *restrict from = input + pixel * channels;
    T *restrict to = result + pixel * channels;
    OF(normalize_edge)(to, from, channels, 0, before, size, factor, beta, k);
    for (dim_t c = before; c < inside; c++) {
      T sum = 0;
      UNROLL for (dim_t i = 0; i < size; i++) sum += from[c - before + i] * from[c - before + i];
      to[c] = OF(divide_by_power)(from[c], k + factor * sum, beta);
    }
    OF(normalize_edge)(to, from, channels, inside, channels, size, factor, beta, k);
  }
}

INLINE T OF(larger)(T a, T b) { return a > b ? a : b; }

INLINE V OF(larger_lanes)(V a, V b) {
  __typeof__(a > b) take = a > b;
  return (V)((take & (__typeof__(take))a) | (~take & (__typeof__(take))b));
}

/// The largest of `n` neighbours; anything if one is NaN, which makes the sum NaN and with it all results.
INLINE T OF(largest)(const T *input, dim_t n) {
  T top = -(T)__builtin_inf();
  dim_t i = 0;
  if (n >= W) {
    V lanes = *(const V *)input;
    for (i = W; i + W <= n; i += W) lanes = OF(larger_lanes)(lanes, *(const V *)(input + i));
    UNROLL for (int half = W / 2; half > 0; half /= 2) {
      V others = lanes;
      UNROLL for (int lane = 0; lane < half; lane++) others[lane] = lanes[lane + half];
      lanes = OF(larger_lanes)(lanes, others);
    }
    top = lanes[0];
  }
  for (; i < n; i++) top = OF(larger)(top, input[i]);
  return top;
}

/// exp(x - shift) for x of at most `shift`, with what rounding the difference lost: all of it where -x is at most `shift` (Dekker's
/// fast sum), elsewhere as many of its digits as x has. What was lost is NaN where x is infinite.
INLINE T OF(exp_less)(T x, T shift) {
  T difference = x - shift;
  T lost = x - (difference + shift);
  T power = OF(math_exp)(difference);
  return power * (lost < 1 ? lost : 1) + power;
}

/// result = exp(input - shift), in place or not; returns the sum. `result` may be NULL.
INLINE T OF(exp_block)(T *result, const T *input, T shift, dim_t n) {
  T block[BLOCK], sum = 0;
  for (dim_t i = 0; i < n; i++) block[i] = input[i];
  for (dim_t i = 0; i < n; i++) {
#pragma clang fp reassociate(on)
    block[i] = OF(exp_less)(block[i], shift);
    sum += block[i];
  }
  if (result)
    for (dim_t i = 0; i < n; i++) result[i] = block[i];
  return sum;
}

INLINE void OF(subtract_block)(T *result, const T *input, T shift, T log_sum, dim_t n) {
  T block[BLOCK];
  for (dim_t i = 0; i < n; i++) block[i] = input[i] - shift - log_sum;
  for (dim_t i = 0; i < n; i++) result[i] = block[i];
}

/// (log of) softmax of `n` neighbours.
INLINE void OF(softmax_row)(T *result, const T *input, dim_t n, bool log) {
  T shift = OF(largest)(input, n), sum = 0;
  dim_t i = 0;
  for (; i + BLOCK <= n; i += BLOCK) sum += OF(exp_block)(log ? NULL : result + i, input + i, shift, BLOCK);
  sum += OF(exp_block)(log ? NULL : result + i, input + i, shift, n % BLOCK);
  if (!log) {
    for (i = 0; i < n; i++) result[i] /= sum;
    return;
  }
  T log_sum = OF(math_log)(sum);
  for (i = 0; i + BLOCK <= n; i += BLOCK) OF(subtract_block)(result + i, input + i, shift, log_sum, BLOCK);
  OF(subtract_block)(result + i, input + i, shift, log_sum, n % BLOCK);
}

/// (log of) softmax of `n` elements that lie apart as `along` says, an element at a time.
INLINE void OF(softmax_line)(T *result, const T *input, dim_t n, loop_t along, bool log) {
  T shift = -(T)__builtin_inf(), sum = 0;
  for (dim_t i = 0; i < n; i++) shift = OF(larger)(shift, input[i * along.from]);
  for (dim_t i = 0; i < n; i++) {
    T power = OF(exp_below)(input[i * along.from] - shift);
    sum += power;
    if (!log) result[i * along.to] = power;
  }
  T log_sum = log ? OF(math_log)(sum) : 0;
  for (dim_t i = 0; i < n; i++) result[i * along.to] = log ? input[i * along.from] - shift - log_sum : result[i * along.to] / sum;
}

/// (log of) softmax of `cols` columns of `n` elements. `along` says how far apart the elements of a column are, `across` how
/// far apart the columns.
INLINE void OF(softmax_columns)(T *result, const T *input, dim_t n, dim_t cols, loop_t along, loop_t across, bool log) {
  T shift[BLOCK], sum[BLOCK], block[BLOCK];
  for (dim_t c = 0; c < cols; c++) shift[c] = -(T)__builtin_inf(), sum[c] = 0;
  for (dim_t i = 0; i < n; i++)
    for (dim_t c = 0; c < cols; c++) shift[c] = OF(larger)(shift[c], input[i * along.from + c * across.from]);
  for (dim_t i = 0; i < n; i++) {
    for (dim_t c = 0; c < cols; c++) block[c] = input[i * along.from + c * across.from];
    for (dim_t c = 0; c < cols; c++) block[c] = OF(exp_less)(block[c], shift[c]);
    for (dim_t c = 0; c < cols; c++) sum[c] += block[c];
    if (log) continue;
    for (dim_t c = 0; c < cols; c++) result[i * along.to + c * across.to] = block[c];
  }
  if (log)
    for (dim_t c = 0; c < cols; c++) sum[c] = OF(math_log)(sum[c]);
  for (dim_t i = 0; i < n; i++) {
    const T *from = log ? input + i * along.from : result + i * along.to;
    dim_t step = log ? across.from : across.to;
    for (dim_t c = 0; c < cols; c++) block[c] = from[c * step];
    for (dim_t c = 0; c < cols; c++) block[c] = log ? block[c] - shift[c] - sum[c] : block[c] / sum[c];
    for (dim_t c = 0; c < cols; c++) result[i * along.to + c * across.to] = block[c];
  }
}

/// Elements along `axis` that are neighbours in memory are a row; otherwise the innermost of the other loops is the columns.
INLINE void OF(softmax)(T *result, const T *input, const ints_t *shape, const ints_t *result_strides,
                        const ints_t *input_strides, dim_t axis, bool log) {
  dim_t n = shape->at[axis], others = count_between(shape, 0, axis) * count_between(shape, axis + 1, shape->size);
  loop_t along = {n, result_strides->at[axis], input_strides->at[axis]};
  if (others == 0 || n == 0) return;
  plane_t plane = plane_around(shape, result_strides, input_strides, axis);
  loop_t row = plane.row, col = plane.col;
  dim_t planes = iterations(&plane.around);
  for (dim_t i = 0; i < planes; i++) {
    loop_t place = locate(&plane.around, i);
    for (dim_t r = 0; r < row.size; r++) {
      T *to = result + place.to + r * row.to;
      const T *from = input + place.from + r * row.from;
      dim_t c = 0;
      if (libjit_small) {
        for (; c < col.size; c++) OF(softmax_line)(to + c * col.to, from + c * col.from, n, along, log);
        continue;
      }
      if (along.to == 1 && along.from == 1) {
        for (; c < col.size; c++) OF(softmax_row)(to + c * col.to, from + c * col.from, n, log);
        continue;
      }
      for (; c + BLOCK <= col.size; c += BLOCK)
        OF(softmax_columns)(to + c * col.to, from + c * col.from, n, BLOCK, along, col, log);
      OF(softmax_columns)(to + c * col.to, from + c * col.from, n, col.size % BLOCK, along, col, log);
    }
  }
}

KERNEL void OF(libjit_softmax)(T *result, const T *input, const ints_t *result_shape, const ints_t *input_shape,
                               const ints_t *result_strides, const ints_t *input_strides, dim_t axis) {
  OF(softmax)(result, input, input_shape, result_strides, input_strides, axis, false);
}

KERNEL void OF(libjit_log_softmax)(T *result, const T *input, const ints_t *result_shape, const ints_t *input_shape,
                                   const ints_t *result_strides, const ints_t *input_strides, dim_t axis) {
  OF(softmax)(result, input, input_shape, result_strides, input_strides, axis, true);
}
#endif
