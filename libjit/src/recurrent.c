/// Recurrent cells. A step multiplies the state by a packed matrix for each gate, and then computes the gates of each
/// sequence. Cells are of floats and of doubles: this file reads itself once for each.
#ifndef T
#include "dot.h"
#include "kernels_gen.h"
#include "libjit.h"
#include "math.h"
#include "tile.h"

/// ONNX's activation functions, as classgen/specs/recurrent.py numbers them.
enum { RELU, TANH, SIGMOID, AFFINE, LEAKY_RELU, THRESHOLDED_RELU, SCALED_TANH, HARD_SIGMOID, ELU, SOFTSIGN, SOFTPLUS };

/// Where in its sequence a row is at a step; -1 if the sequence has ended.
INLINE dim_t place_at(dim_t step, dim_t steps, const int32_t *lengths, const ints_t *lengths_shape, dim_t row,
                      bool reverse) {
  dim_t length = lengths_shape->at[0] ? max_dim(min_dim(lengths[row], steps), 0) : steps;
  if (step >= length) return -1;
  return reverse ? length - 1 - step : step;
}

#include "as_f32.h"
#include "recurrent.c"
#include "as_f64.h"
#include "recurrent.c"
#else

/// An activation function of a number that is limited first. NaN stays what it is.
INLINE T OF(activate)(dim_t function, const T *coefficients, T limit, T x) {
  T alpha = coefficients[0], beta = coefficients[1];
  x = x > limit ? limit : x;
  x = x < -limit ? -limit : x;
  switch (function) {
  case RELU: return x < 0 ? 0 : x;
  case TANH: return OF(math_tanh)(x);
  case SIGMOID: return OF(math_sigmoid)(x);
  case AFFINE: return alpha * x + beta;
  case LEAKY_RELU: return x < 0 ? alpha * x : x;
  case THRESHOLDED_RELU: return x <= alpha ? 0 : x;
  case SCALED_TANH: return alpha * OF(math_tanh)(beta * x);
  case HARD_SIGMOID: {
    T y = alpha * x + beta;
    y = y < 0 ? 0 : y;
    return y > 1 ? 1 : y;
  }
  case ELU: return x < 0 ? alpha * (OF(math_exp)(x) - 1) : x;
  case SOFTSIGN: return x / (1 + OF(math_abs)(x));
  default: return OF(math_softplus)(x);
  }
}

/// Some rows of a state times some vectors of a packed block of columns.
INLINE void OF(multiply_tile)(S *to, dim_t to_step, const T *state, dim_t state_step, const F *weights, dim_t block,
                              dim_t depth, dim_t rows, dim_t vectors) {
  V sums[MAX_TILE_PIXELS][MAX_TILE_VECTORS];
  UNROLL for (dim_t r = 0; r < rows; r++) {
    UNROLL for (dim_t v = 0; v < vectors; v++) sums[r][v] = (V){0};
  }
  ROLLED for (dim_t k = 0; k < depth; k++) {
    V weight[MAX_TILE_VECTORS];
    UNROLL for (dim_t v = 0; v < vectors; v++) weight[v] = *(const V *)(weights + k * block + v * W);
    UNROLL for (dim_t r = 0; r < rows; r++) {
      V x = SPLAT(state[r * state_step + k], V);
      UNROLL for (dim_t v = 0; v < vectors; v++) sums[r][v] = MULTIPLY_ADD(sums[r][v], x, weight[v]);
    }
  }
  UNROLL for (dim_t r = 0; r < rows; r++) {
    UNROLL for (dim_t v = 0; v < vectors; v++) *(V *)(to + r * to_step + v * W) = sums[r][v];
  }
}

/// What multiplies a state: a packed matrix for each gate, and the decision how. Sums are [rows, gates, blocks, block].
typedef struct {
  const F *weights;
  S *sums;
  dim_t gates, blocks, depth, block, rows, vectors;
} OF(recurrence_t);

INLINE OF(recurrence_t) OF(recurrence_of)(const F *weights, const ints_t *shape, S *sums, dim_t rows, dim_t vectors) {
  return (OF(recurrence_t)){weights, sums, shape->at[0], shape->at[1], shape->at[2], shape->at[3], rows, vectors};
}

/// The sums of one row, from one to the next.
INLINE dim_t OF(sums_of)(const OF(recurrence_t) *p) { return p->gates * p->blocks * p->block; }

/// The sums of rows [first, last) for gates [first_gate, last_gate). Every other step goes through the weights from the end:
/// what the cache kept of the step before is there still, however much it is.
INLINE void OF(multiply_state)(const OF(recurrence_t) *p, const T *state, dim_t state_step, dim_t first, dim_t last,
                               dim_t first_gate, dim_t last_gate, bool from_end) {
  dim_t begin = first_gate * p->blocks, end = last_gate * p->blocks, step = OF(sums_of)(p);
  for (dim_t i = begin; i < end; i++) {
    dim_t at = from_end ? begin + end - 1 - i : i, row = first;
    const F *weights = p->weights + at * p->depth * p->block;
    UNROLL for (dim_t rows = p->rows; rows; rows /= 2) {
      for (; row + rows <= last; row += rows)
        for (dim_t v = 0; v < p->block; v += p->vectors * W)
          OF(multiply_tile)(p->sums + row * step + at * p->block + v, step, state + row * state_step, state_step,
                            weights + v, p->block, p->depth, rows, p->vectors);
    }
  }
}

/// Rows of an initial state become the state.
INLINE void OF(begin_state)(T *state, const T *initial, dim_t units, dim_t first, dim_t last) {
  for (dim_t i = first * units; i < last * units; i++) state[i] = initial[i];
}

/// A row of the result is the state, or zeros after the end of its sequence.
INLINE void OF(write_row)(T *restrict result, const T *restrict state, dim_t units, bool ended) {
  for (dim_t i = 0; i < units; i++) result[i] = ended ? 0 : state[i];
}

/// The gates of a row of an LSTM: `sums` are in the order input, output, forget, cell, as far apart as `step` says.
INLINE void OF(lstm_row)(T *restrict h, T *restrict c, T *restrict result, const T *restrict gates,
                         const S *restrict sums, dim_t step, const T *restrict peepholes, bool peeps, dim_t units,
                         const ints_t *functions, const T *coefficients, T limit, bool coupled) {
  for (dim_t i = 0; i < units; i++) {
    T in = gates[i] + sums[i], out = gates[units + i] + sums[step + i];
    T forget = gates[2 * units + i] + sums[2 * step + i], cell = gates[3 * units + i] + sums[3 * step + i];
    T before = c[i];
    if (peeps) in += peepholes[i] * before;
    if (peeps) forget += peepholes[2 * units + i] * before;
    in = OF(activate)(functions->at[0], coefficients, limit, in);
    forget = coupled ? 1 - in : OF(activate)(functions->at[0], coefficients, limit, forget);
    cell = OF(activate)(functions->at[1], coefficients + 2, limit, cell);
    T after = forget * before + in * cell;
    if (peeps) out += peepholes[units + i] * after;
    out = OF(activate)(functions->at[0], coefficients, limit, out);
    T state = out * OF(activate)(functions->at[2], coefficients + 4, INF_F32, after);
    c[i] = after;
    h[i] = state;
    result[i] = state;
  }
}

KERNEL void OF(libjit_cpu_lstm)(T *result, T *last_h, T *last_c, const T *gates, const F *recurrence, const T *peepholes,
                                const int32_t *lengths, const T *initial_h, const T *initial_c, const T *coefficients,
                                S *sums, const ints_t *result_shape, const ints_t *last_h_shape,
                                const ints_t *last_c_shape, const ints_t *gates_shape, const ints_t *recurrence_shape,
                                const ints_t *peepholes_shape, const ints_t *lengths_shape,
                                const ints_t *initial_h_shape, const ints_t *initial_c_shape,
                                const ints_t *coefficients_shape, const ints_t *sums_shape,
                                const ints_t *result_strides, const ints_t *gates_strides, const ints_t *functions,
                                float limit, bool reverse, bool coupled, dim_t tile_rows, dim_t tile_vectors,
                                dim_t first_unit, dim_t last_unit) {
  dim_t steps = result_shape->at[0], units = result_shape->at[2];
  dim_t first = first_unit * tile_rows, last = min_dim(last_unit * tile_rows, result_shape->at[1]);
  OF(recurrence_t) product = OF(recurrence_of)(recurrence, recurrence_shape, sums, tile_rows, tile_vectors);
  OF(begin_state)(last_h, initial_h, units, first, last);
  OF(begin_state)(last_c, initial_c, units, first, last);
  for (dim_t step = 0; step < steps; step++) {
    OF(multiply_state)(&product, last_h, units, first, last, 0, 4, step & 1);
    for (dim_t row = first; row < last; row++) {
      dim_t place = place_at(step, steps, lengths, lengths_shape, row, reverse), time = place < 0 ? step : place;
      T *to = result + time * result_strides->at[0] + row * result_strides->at[1], *h = last_h + row * units;
      if (place < 0) OF(write_row)(to, h, units, true);
      else
        OF(lstm_row)(h, last_c + row * units, to, gates + time * gates_strides->at[0] + row * gates_strides->at[1],
                     sums + row * OF(sums_of)(&product), product.blocks * product.block, peepholes,
                     peepholes_shape->at[0], units, functions, coefficients, limit, coupled);
    }
  }
}

/// The update and the reset gate of a row of a GRU; they take the place of their sums. What the reset gate leaves of the state
/// does in place of it, where that is what the hidden gate's matrix is multiplied by.
INLINE void OF(gru_reset_row)(const T *restrict h, const T *restrict gates, S *restrict sums, dim_t step, dim_t units,
                              dim_t function, const T *coefficients, T limit, bool reset_after) {
  for (dim_t i = 0; i < units; i++) {
    T update = OF(activate)(function, coefficients, limit, gates[i] + sums[i]);
    T reset = OF(activate)(function, coefficients, limit, gates[units + i] + sums[step + i]);
    sums[i] = update;
    sums[step + i] = reset_after ? reset : reset * h[i];
  }
}

/// The hidden gate of a row, and the state between it and the state before.
INLINE void OF(gru_row)(T *restrict h, T *restrict result, const T *restrict gates, const S *restrict sums, dim_t step,
                        const T *restrict bias, dim_t units, dim_t function, const T *coefficients, T limit,
                        bool reset_after) {
  for (dim_t i = 0; i < units; i++) {
    T sum = sums[2 * step + i], update = sums[i];
    if (reset_after) sum = sums[step + i] * (sum + bias[i]);
    T hidden = OF(activate)(function, coefficients, limit, gates[2 * units + i] + sum);
    T state = (1 - update) * hidden + update * h[i];
    h[i] = state;
    result[i] = state;
  }
}

KERNEL void OF(libjit_cpu_gru)(T *result, T *last_h, const T *gates, const F *recurrence, const T *bias,
                               const int32_t *lengths, const T *initial_h, const T *coefficients, S *sums,
                               const ints_t *result_shape, const ints_t *last_h_shape, const ints_t *gates_shape,
                               const ints_t *recurrence_shape, const ints_t *bias_shape, const ints_t *lengths_shape,
                               const ints_t *initial_h_shape, const ints_t *coefficients_shape,
                               const ints_t *sums_shape, const ints_t *result_strides, const ints_t *gates_strides,
                               const ints_t *functions, float limit, bool reverse, bool reset_after, dim_t tile_rows,
                               dim_t tile_vectors, dim_t first_unit, dim_t last_unit) {
  dim_t steps = result_shape->at[0], units = result_shape->at[2];
  dim_t first = first_unit * tile_rows, last = min_dim(last_unit * tile_rows, result_shape->at[1]);
  OF(recurrence_t) product = OF(recurrence_of)(recurrence, recurrence_shape, sums, tile_rows, tile_vectors);
  dim_t gate = product.blocks * product.block, sums_step = OF(sums_of)(&product);
  OF(begin_state)(last_h, initial_h, units, first, last);
  for (dim_t step = 0; step < steps; step++) {
    OF(multiply_state)(&product, last_h, units, first, last, 0, reset_after ? 3 : 2, step & 1);
    for (dim_t row = first; row < last; row++) {
      dim_t place = max_dim(place_at(step, steps, lengths, lengths_shape, row, reverse), 0);
      const T *from = gates + place * gates_strides->at[0] + row * gates_strides->at[1];
      OF(gru_reset_row)(last_h + row * units, from, sums + row * sums_step, gate, units, functions->at[0], coefficients,
                        limit, reset_after);
    }
    if (!reset_after) OF(multiply_state)(&product, sums + gate, sums_step, first, last, 2, 3, step & 1);
    for (dim_t row = first; row < last; row++) {
      dim_t place = place_at(step, steps, lengths, lengths_shape, row, reverse), time = place < 0 ? step : place;
      T *to = result + time * result_strides->at[0] + row * result_strides->at[1], *h = last_h + row * units;
      if (place < 0) OF(write_row)(to, h, units, true);
      else
        OF(gru_row)(h, to, gates + time * gates_strides->at[0] + row * gates_strides->at[1], sums + row * sums_step,
                    gate, bias, units, functions->at[1], coefficients + 2, limit, reset_after);
    }
  }
}

/// The gate of a row of a plain recurrent layer.
INLINE void OF(rnn_row)(T *restrict h, T *restrict result, const T *restrict gates, const S *restrict sums, dim_t units,
                        dim_t function, const T *coefficients, T limit) {
  for (dim_t i = 0; i < units; i++) h[i] = result[i] = OF(activate)(function, coefficients, limit, gates[i] + sums[i]);
}

KERNEL void OF(libjit_cpu_rnn)(T *result, T *last_h, const T *gates, const F *recurrence, const int32_t *lengths,
                               const T *initial_h, const T *coefficients, S *sums, const ints_t *result_shape,
                               const ints_t *last_h_shape, const ints_t *gates_shape, const ints_t *recurrence_shape,
                               const ints_t *lengths_shape, const ints_t *initial_h_shape,
                               const ints_t *coefficients_shape, const ints_t *sums_shape, const ints_t *result_strides,
                               const ints_t *gates_strides, const ints_t *functions, float limit, bool reverse,
                               dim_t tile_rows, dim_t tile_vectors, dim_t first_unit, dim_t last_unit) {
  dim_t steps = result_shape->at[0], units = result_shape->at[2];
  dim_t first = first_unit * tile_rows, last = min_dim(last_unit * tile_rows, result_shape->at[1]);
  OF(recurrence_t) product = OF(recurrence_of)(recurrence, recurrence_shape, sums, tile_rows, tile_vectors);
  OF(begin_state)(last_h, initial_h, units, first, last);
  for (dim_t step = 0; step < steps; step++) {
    OF(multiply_state)(&product, last_h, units, first, last, 0, 1, step & 1);
    for (dim_t row = first; row < last; row++) {
      dim_t place = place_at(step, steps, lengths, lengths_shape, row, reverse), time = place < 0 ? step : place;
      T *to = result + time * result_strides->at[0] + row * result_strides->at[1], *h = last_h + row * units;
      if (place < 0) OF(write_row)(to, h, units, true);
      else
        OF(rnn_row)(h, to, gates + time * gates_strides->at[0] + row * gates_strides->at[1],
                    sums + row * OF(sums_of)(&product), units, functions->at[0], coefficients, limit);
    }
  }
}

#endif
