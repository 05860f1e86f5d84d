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

/// exp(x) * 2^exponent, to 2 ULP, where that is no subnormal and no overflow.
INLINE vf exp_lanes_f32(vf x, float exponent) {
  vf shifted = x * 0x1.715476p+0f + (ROUNDER_F32 + 127.0f + exponent);
  vf k = shifted - (ROUNDER_F32 + 127.0f + exponent);
  vf r = (x - k * 0x1.62e4p-1f) - k * 0x1.7f7d1cp-20f, z = r * r;
  vf high = (0x1.6a2318p-10f * r + 0x1.123a8ep-7f) * z + (0x1.5558f6p-5f * r + 0x1.55549p-3f);
  vf scale = (vf)((vi)shifted << 23);
  return scale * (z * (high * r + 0x1.fffffcp-2f) + r) + scale;
}

#endif
