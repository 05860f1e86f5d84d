/// Normalisation along one dimension. Softmax may run in place, so every block is read as a whole before it is written.
/// All is of floats and of doubles: this file reads itself once for each.
#ifndef T
#include "kernels_gen.h"
#include "lanes.h"
#include "libjit.h"
#include "math.h"
#include "walk.h"

/// Elements that go through a function at once: their loop has a constant length and no aliases, so it vectorises.
#define BLOCK 64

/// Whether the processor has the square roots of a vector.
#if SQRT_F32_IN_HARDWARE && SQRT_F64_IN_HARDWARE
#define ROOTS_OF_VECTORS 1
#else
#define ROOTS_OF_VECTORS 0
#endif

/// Vectors that are summed side by side, to hide the latency of one addition.
#define ACCUMULATORS 4

/// Vectors of a row that stay in registers.
#define HELD 8

/// exp(x + lost) * EXP_SCALE for x of at most 0, or NaN, and what is lost of its digits: one power of two is enough where no result is
/// subnormal, and so small a number that it is nothing where x is below -104.5.
#define EXP_SCALE 0x1p24f
#if defined(__AVX512F__) && VECTOR_BYTES == 64
/// x = k ln 2 / 16 + r. The powers 2^(j / 16) are in a register; of each the exponent is less by what j adds to it.
INLINE vf exp_scaled_f32(vf x, vf lost) {
  const vi powers = {0x3f800000, 0x3f7daac3, 0x3f7b95c2, 0x3f79c3d3, 0x3f7837f0, 0x3f76f532, 0x3f75fed7, 0x3f75583f,
      0x3f7504f3, 0x3f7508a4, 0x3f75672a, 0x3f76248c, 0x3f7744fd, 0x3f78ccdf, 0x3f7ac0c7, 0x3f7d257d};
  vf lowest = (vf){0} - 104.5f;
  take_f32 below = x < lowest;
  x = choose_lanes_f32(below, lowest, x);
  vf shifted = x * 0x1.715476p+4f + (ROUNDER_F32 + 384.0f);
  vf k = shifted - (ROUNDER_F32 + 384.0f);
  vf r = ((x - k * 0x1.62e4p-5f) - k * 0x1.7f7d1cp-24f) + choose_lanes_f32(below, (vf){0}, lost);
  vf scale = (vf)((vi)__builtin_ia32_permvarsi512(powers, (vi)shifted) + ((vi)shifted << 19));
  return scale * ((0x1.55574ap-3f * r + 0x1.00022p-1f) * (r * r) + r) + scale;
}
#else
INLINE vf exp_scaled_f32(vf x, vf lost) {
  vf lowest = (vf){0} - 104.5f, one = (vf){0} + 1.0f;
  x = choose_lanes_f32(x < lowest, lowest, x);
  vf shifted = x * 0x1.715476p+0f + (ROUNDER_F32 + 151.0f);
  vf k = shifted - (ROUNDER_F32 + 151.0f);
  vf r = (x - k * 0x1.62e4p-1f) - k * 0x1.7f7d1cp-20f, z = r * r;
  vf high = (0x1.6a2318p-10f * r + 0x1.123a8ep-7f) * z + (0x1.5558f6p-5f * r + 0x1.55549p-3f);
  vf scale = (vf)((vi)shifted << 23);
  vf power = scale * (z * (high * r + 0x1.fffffcp-2f) + r) + scale;
  return power * choose_lanes_f32(lost < one, lost, one) + power;
}
#endif
INLINE vd exp_scaled_f64(vd x, vd lost) {
  double block[DOUBLE_LANES];
  for (int i = 0; i < DOUBLE_LANES; i++) block[i] = math_exp_f64(x[i]) * EXP_SCALE;
  for (int i = 0; i < DOUBLE_LANES; i++) x[i] = block[i] + block[i] * (lost[i] < 1 ? lost[i] : 1);
  return x;
}

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

/// x / s^0.75 to 3 ULP, for a positive s that is not subnormal, or NaN. The bits of s times -1/4 are those of s^-0.25, but for 3 %;
/// what the fourth power of that times s lacks of 1 says the rest. All of it takes less than the roots of a vector.
INLINE vf over_power_f32(vf x, vf s) {
  vf root = (vf)(0x4f5818c0 - ((vi)s >> 2)), square = root * root, rest = 1.0f - square * s * square;
  vf sum = ((((0x1.0deacep-1f * rest + 0x1.1931c4p-1f) * rest + 0x1.20b0e2p-1f) * rest + 0x1.33f286p-1f) * rest + 0x1.500008p-1f) * rest
      + 0.75f;
  vf near = x * (square * root);
  return choose_lanes_f32(s == INF_F32, x - x, near * (rest * sum) + near);
}
INLINE vd over_power_f64(vd x, vd s) {
  vd root = __builtin_elementwise_sqrt(s);
  return x / (root * __builtin_elementwise_sqrt(root));
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

/// Channels [first, last) of one pixel, one after the other.
INLINE void OF(normalize_few)(T *restrict result, const T *restrict input, dim_t channels, dim_t first, dim_t last,
                               dim_t size, T factor, T beta, T k) {
  for (dim_t c = first; c < last; c++) {
    dim_t from = c - (size - 1) / 2, sum_first = max_dim(from, 0), sum_last = min_dim(from + size, channels);
    T sum = 0;
    for (dim_t i = sum_first; i < sum_last; i++) sum += input[i] * input[i];
    result[c] = OF(divide_by_power)(input[c], k + factor * sum, beta);
  }
}

/// A vector of channels of a pixel, from `first` on, whose windows are all `inside` the pixel, or not: what belongs to others is read
/// and left out.
INLINE void OF(normalize_lanes)(T *restrict result, const T *restrict input, dim_t channels, dim_t first, dim_t size,
                                T factor, T beta, T k, bool inside) {
  V sum = {0};
  for (dim_t i = 0; i < size; i++) {
    dim_t shift = i - (size - 1) / 2;
    V x = *(const V *)(input + first + shift);
    if (!inside)
      UNROLL for (int lane = 0; lane < W; lane++) {
        dim_t channel = first + shift + lane;
        x[lane] = channel >= 0 && channel < channels ? x[lane] : 0;
      }
    sum += x * x;
  }
  V x = *(const V *)(input + first), base = k + factor * sum;
  if (beta == (T)0.75 && factor >= 0 && k >= (T)0x1p-126)
    x = OF(over_power)(x, base);
  else if (beta == (T)0.75)
    x /= __builtin_elementwise_sqrt(base) * __builtin_elementwise_sqrt(__builtin_elementwise_sqrt(base));
  else if (beta == (T)0.5)
    x /= __builtin_elementwise_sqrt(base);
  else
    for (int lane = 0; lane < W; lane++) x[lane] = OF(divide_by_power)(x[lane], base[lane], beta);
  *(V *)(result + first) = x;
}

/// The same at an end of a pixel, which may be the first or the last of all: beyond these is nothing that may be read.
INLINE void OF(normalize_end)(T *restrict result, const T *restrict input, dim_t channels, dim_t first, dim_t size, T factor,
                              T beta, T k, bool begins, bool ends) {
  if ((begins && first < (size - 1) / 2) || (ends && first + W + size / 2 > channels))
    OF(normalize_few)(result, input, channels, first, first + W, size, factor, beta, k);
  else
    OF(normalize_lanes)(result, input, channels, first, size, factor, beta, k, false);
}

/// Whether pixels are computed in vectors: these are not longer than a pixel, and no window reaches farther than the next one.
INLINE bool OF(in_vectors)(dim_t channels, dim_t size) {
  return W > 1 && ROOTS_OF_VECTORS && !libjit_small && channels >= W && size <= 2 * W;
}

/// input / (k + alpha / size * sum of squares of the `size` channels around)^beta; channels are the last dimension.
KERNEL void OF(libjit_local_response_normalization)(T *result, const T *input, const ints_t *result_shape,
                                                    const ints_t *input_shape, dim_t size, float alpha, float beta,
                                                    float k) {
  dim_t channels = input_shape->at[input_shape->size - 1];
  dim_t pixels = count_between(input_shape, 0, input_shape->size - 1);
  T factor = (T)alpha / (T)size;
  for (dim_t pixel = 0; pixel < pixels; pixel++) {
    const T *restrict from = input + pixel * channels;
    T *restrict to = result + pixel * channels;
    if (!OF(in_vectors)(channels, size)) {
      OF(normalize_few)(to, from, channels, 0, channels, size, factor, beta, k);
      continue;
    }
    bool begins = pixel == 0, ends = pixel == pixels - 1;
    dim_t c = W;
    OF(normalize_end)(to, from, channels, 0, size, factor, beta, k, begins, ends);
    for (; c + W + size / 2 <= channels; c += W) OF(normalize_lanes)(to, from, channels, c, size, factor, beta, k, true);
    for (; c < channels; c += W)
      OF(normalize_end)(to, from, channels, min_dim(c, channels - W), size, factor, beta, k, begins, ends);
  }
}

INLINE T OF(larger)(T a, T b) { return a > b ? a : b; }

INLINE V OF(larger_lanes)(V a, V b) { return OF(choose_lanes)(a > b, a, b); }

/// The largest element of a vector; anything if one is NaN.
INLINE T OF(largest_lane)(V lanes) {
  UNROLL for (int half = W / 2; half > 0; half /= 2) {
    V others = lanes;
    UNROLL for (int lane = 0; lane < half; lane++) others[lane] = lanes[lane + half];
    lanes = OF(larger_lanes)(lanes, others);
  }
  return lanes[0];
}

/// The largest of `n` neighbours, a vector of them at least; anything if one is NaN, which makes the sum NaN and with it all
/// results.
INLINE T OF(largest)(const T *input, dim_t n) {
  V lanes[ACCUMULATORS];
  dim_t i = 0;
  UNROLL for (int k = 0; k < ACCUMULATORS; k++) lanes[k] = *(const V *)input;
  for (; i + ACCUMULATORS * W <= n; i += ACCUMULATORS * W)
    UNROLL for (int k = 0; k < ACCUMULATORS; k++) lanes[k] = OF(larger_lanes)(lanes[k], *(const V *)(input + i + k * W));
  for (; i + W <= n; i += W) lanes[0] = OF(larger_lanes)(lanes[0], *(const V *)(input + i));
  lanes[0] = OF(larger_lanes)(lanes[0], *(const V *)(input + n - W));
  UNROLL for (int k = 1; k < ACCUMULATORS; k++) lanes[0] = OF(larger_lanes)(lanes[0], lanes[k]);
  return OF(largest_lane)(lanes[0]);
}

/// exp(x - shift) for x of at most `shift`, with what rounding the difference lost: all of it where -x is at most `shift` (Dekker's
/// fast sum), elsewhere as many of its digits as x has. What was lost is NaN where x is infinite.
INLINE T OF(exp_less)(T x, T shift) {
  T difference = x - shift;
  T lost = x - (difference + shift);
  T power = OF(math_exp)(difference);
  return power * (lost < 1 ? lost : 1) + power;
}

/// The same of a vector, times `EXP_SCALE`.
INLINE V OF(exp_less_lanes)(V x, T shift) {
  V difference = x - shift;
  return OF(exp_scaled)(difference, x - (difference + shift));
}

/// (log of) softmax of `n` neighbours, a vector of them at least. What is left at the end is a part of the last whole vector of
/// the row, which is read before anything is written.
INLINE void OF(softmax_long_row)(T *result, const T *input, dim_t n, bool log) {
  T shift = OF(largest)(input, n);
  V sums[ACCUMULATORS] = {{0}}, last = *(const V *)(input + n - W);
  dim_t i = 0;
  for (; i + ACCUMULATORS * W <= n; i += ACCUMULATORS * W)
    UNROLL for (int k = 0; k < ACCUMULATORS; k++) {
      V power = OF(exp_less_lanes)(*(const V *)(input + i + k * W), shift);
      sums[k] += power;
      if (!log) *(V *)(result + i + k * W) = power;
    }
  for (; i + W <= n; i += W) {
    V power = OF(exp_less_lanes)(*(const V *)(input + i), shift);
    sums[0] += power;
    if (!log) *(V *)(result + i) = power;
  }
  if (i < n) {
    V power = OF(exp_less_lanes)(last, shift), rest = power;
    UNROLL for (int lane = 0; lane < W; lane++) rest[lane] = lane < W - (n - i) ? 0 : rest[lane];
    sums[1] += rest;
    if (!log) *(V *)(result + n - W) = power;
  }
  UNROLL for (int k = 1; k < ACCUMULATORS; k++) sums[0] += sums[k];
  T sum = OF(sum_of_lanes)(sums[0]);
  if (!log) {
    T factor = 1 / sum;
    for (i = 0; i < n; i++) result[i] *= factor;
    return;
  }
  T log_sum = OF(math_log)(sum / EXP_SCALE);
  for (i = 0; i + W <= n; i += W) *(V *)(result + i) = *(const V *)(input + i) - shift - log_sum;
  if (i < n) *(V *)(result + n - W) = last - shift - log_sum;
}

/// (log of) softmax of `n` neighbours, from one to HELD vectors of them, which stay in registers.
INLINE void OF(softmax_held_row)(T *result, const T *input, dim_t n, bool log) {
  V row[HELD], top = *(const V *)input, sums = {0};
  dim_t vectors = (n + W - 1) / W, again = vectors * W - n;  // elements that the last vector has in common with the one before
  for (dim_t k = 0; k < vectors; k++) row[k] = *(const V *)(input + min_dim(k * W, n - W));
  for (dim_t k = 1; k < vectors; k++) top = OF(larger_lanes)(top, row[k]);
  T shift = OF(largest_lane)(top);
  for (dim_t k = 0; k < vectors; k++) {
    V power = OF(exp_less_lanes)(row[k], shift), part = power;
    UNROLL for (int lane = 0; lane < W; lane++) part[lane] = k == vectors - 1 && lane < again ? 0 : part[lane];
    sums += part;
    row[k] = log ? row[k] : power;
  }
  T sum = OF(sum_of_lanes)(sums), factor = 1 / sum, log_sum = log ? OF(math_log)(sum / EXP_SCALE) : 0;
  for (dim_t k = 0; k < vectors; k++)
    *(V *)(result + min_dim(k * W, n - W)) = log ? row[k] - shift - log_sum : row[k] * factor;
}

/// (log of) softmax of `n` neighbours, fewer than a vector.
INLINE void OF(softmax_short_row)(T *result, const T *input, dim_t n, bool log) {
  T block[W], shift = -(T)__builtin_inf(), sum = 0;
  for (dim_t i = 0; i < n; i++) shift = OF(larger)(shift, input[i]);
  for (dim_t i = 0; i < n; i++) block[i] = input[i];
  for (dim_t i = 0; i < n; i++) {
#pragma clang fp reassociate(on)
    T power = OF(exp_less)(block[i], shift);
    sum += power;
    if (!log) block[i] = power;
  }
  T log_sum = log ? OF(math_log)(sum) : 0, factor = 1 / sum;
  for (dim_t i = 0; i < n; i++) block[i] = log ? block[i] - shift - log_sum : block[i] * factor;
  for (dim_t i = 0; i < n; i++) result[i] = block[i];
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
  for (dim_t c = 0; c < cols; c++) sum[c] = log ? OF(math_log)(sum[c]) : 1 / sum[c];
  for (dim_t i = 0; i < n; i++) {
    const T *from = log ? input + i * along.from : result + i * along.to;
    dim_t step = log ? across.from : across.to;
    for (dim_t c = 0; c < cols; c++) block[c] = from[c * step];
    for (dim_t c = 0; c < cols; c++) block[c] = log ? block[c] - shift[c] - sum[c] : block[c] * sum[c];
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
        for (; c < col.size; c++) {
          if (n > HELD * W)
            OF(softmax_long_row)(to + c * col.to, from + c * col.from, n, log);
          else if (n >= W)
            OF(softmax_held_row)(to + c * col.to, from + c * col.from, n, log);
          else
            OF(softmax_short_row)(to + c * col.to, from + c * col.from, n, log);
        }
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
