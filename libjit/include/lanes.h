/// What is done with the lanes of vectors of floats and of doubles.
#ifndef LIBJIT_LANES_H
#define LIBJIT_LANES_H

#include "libjit.h"
#include "math.h"

#define LANES_OF(SUFFIX, T, V, W)                                                                                      \
  typedef __typeof__((V){} > (V){}) take_##SUFFIX;                                                                     \
  /** Lanes of `a` where `take` is -1, of `b` where it is 0. */                                                        \
  INLINE V choose_lanes_##SUFFIX(take_##SUFFIX take, V a, V b) {                                                       \
    return (V)((take & (take_##SUFFIX)a) | (~take & (take_##SUFFIX)b));                                                \
  }                                                                                                                    \
  /** The sum of all lanes, by halves. */                                                                              \
  INLINE T sum_of_lanes_##SUFFIX(V lanes) {                                                                            \
    UNROLL for (int half = W / 2; half > 0; half /= 2) {                                                               \
      V others = lanes;                                                                                                \
      UNROLL for (int lane = 0; lane < half; lane++) others[lane] = lanes[lane + half];                                \
      lanes += others;                                                                                                 \
    }                                                                                                                  \
    return lanes[0];                                                                                                   \
  }
LANES_OF(f32, float, vf, LANES)
LANES_OF(f64, double, vd, DOUBLE_LANES)
#undef LANES_OF

#endif
