/// Attention whose memory has a fixed size. It is of floats and of doubles: this file reads itself once for each.
#ifndef T
#include "kernels_gen.h"
#include "libjit.h"

#include "as_f32.h"
#include "attention.c"
#include "as_f64.h"
#include "attention.c"
#else

/// One step of one head: its state is `depth` rows of `width` numbers. All that is read by a step was computed by it or before.
INLINE void OF(remember)(T *restrict state, T *restrict added, const T *restrict key, const T *restrict value,
                         const T *factors, dim_t factor_step, const T *rate, dim_t depth, dim_t width) {
  if (factors)
    for (dim_t d = 0; d < depth; d++)
      for (dim_t i = 0; i < width; i++) state[d * width + i] *= factors[d * factor_step];
  for (dim_t i = 0; i < width; i++) added[i] = 0;
  if (rate) {
    for (dim_t d = 0; d < depth; d++)
      for (dim_t i = 0; i < width; i++) added[i] += state[d * width + i] * key[d];
  }
  for (dim_t i = 0; i < width; i++) added[i] = rate ? *rate * (value[i] - added[i]) : value[i];
  for (dim_t d = 0; d < depth; d++)
    for (dim_t i = 0; i < width; i++) state[d * width + i] += key[d] * added[i];
}

/// A query times the state.
INLINE void OF(recollect)(T *restrict result, const T *restrict state, const T *restrict query, dim_t depth, dim_t width) {
  for (dim_t i = 0; i < width; i++) result[i] = 0;
  for (dim_t d = 0; d < depth; d++)
    for (dim_t i = 0; i < width; i++) result[i] += query[d] * state[d * width + i];
}

KERNEL void OF(libjit_linear_attention)(T *result, T *last, const T *query, const T *key, const T *value,
                                        const T *factors, const T *rates, const T *initial, T *added,
                                        const ints_t *result_shape, const ints_t *last_shape, const ints_t *query_shape,
                                        const ints_t *key_shape, const ints_t *value_shape, const ints_t *factors_shape,
                                        const ints_t *rates_shape, const ints_t *initial_shape,
                                        const ints_t *added_shape) {
  dim_t steps = query_shape->at[1], heads = key_shape->at[2], group = query_shape->at[2] / heads;
  dim_t depth = key_shape->at[3], width = value_shape->at[3], size = depth * width;
  bool scaled = factors_shape->size > 1, corrected = rates_shape->size > 1;
  dim_t factor = scaled ? factors_shape->at[3] : 0, rate_heads = corrected ? rates_shape->at[2] : 0;
  for (dim_t batch = 0; batch < query_shape->at[0]; batch++) {
    T *restrict fresh = added + batch * width;
    for (dim_t head = 0; head < heads; head++) {
      T *state = last + (batch * heads + head) * size;
      const T *first = initial + (batch * heads + head) * size;
      for (dim_t i = 0; i < size; i++) state[i] = first[i];
      for (dim_t step = 0; step < steps; step++) {
        dim_t line = batch * steps + step, place = line * heads + head;
        const T *rate = corrected ? rates + line * rate_heads + (rate_heads == 1 ? 0 : head) : NULL;
        OF(remember)(state, fresh, key + place * depth, value + place * width, scaled ? factors + place * factor : NULL,
                     factor == 1 ? 0 : 1, rate, depth, width);
        for (dim_t q = place * group; q < (place + 1) * group; q++)
          OF(recollect)(result + q * width, state, query + q * depth, depth, width);
      }
    }
  }
}

#endif
