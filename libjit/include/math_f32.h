/// Single precision mathematics; included by math.h, which states the rules.
#ifndef LIBJIT_MATH_F32_H
#define LIBJIT_MATH_F32_H

#define INF_F32 __builtin_inff()
#define NAN_F32 __builtin_nanf("")

/// Adding it leaves the rounded sum in the low bits of the mantissa, for sums below 2^22.
#define ROUNDER_F32 0x1.8p23f

INLINE float math_abs_f32(float x) { return __builtin_fabsf(x); }

#if ROUNDING_IN_HARDWARE
INLINE float math_round_f32(float x) { return __builtin_elementwise_rint(x); }
INLINE float math_floor_f32(float x) { return __builtin_elementwise_floor(x); }
INLINE float math_ceil_f32(float x) { return __builtin_elementwise_ceil(x); }
INLINE float math_trunc_f32(float x) { return __builtin_elementwise_trunc(x); }
#else
/// Rounds half to even. From 2^23 on every number is an integer.
INLINE float math_round_f32(float x) {
#pragma clang fp contract(off)
  float size = __builtin_fabsf(x);
  float rounded = (size + 0x1p23f) - 0x1p23f;
  return __builtin_copysignf(size < 0x1p23f ? rounded : x, x);
}

INLINE float math_floor_f32(float x) {
  float rounded = math_round_f32(x);
  return __builtin_copysignf(rounded > x ? rounded - 1.0f : rounded, x);
}

INLINE float math_ceil_f32(float x) {
  float rounded = math_round_f32(x);
  return __builtin_copysignf(rounded < x ? rounded + 1.0f : rounded, x);
}

INLINE float math_trunc_f32(float x) { return __builtin_copysignf(math_floor_f32(__builtin_fabsf(x)), x); }
#endif

/// Correctly rounded: with one digit more than the result has, no root lies half way.
INLINE float math_sqrt_f32(float x) {
#if SQRT_F32_IN_HARDWARE
  return __builtin_elementwise_sqrt(x);
#else
  float normal = x < 0x1p-126f ? x * 0x1p24f : x;
  uint32_t bits = bits_f32(normal);
  int32_t exponent = (int32_t)(bits >> 23) - 127;
  uint64_t mantissa = (bits & 0x7fffff) | 0x800000;
  uint64_t root = root_digits(mantissa << (39 + (exponent & 1)), 25);
  int32_t half = (exponent >> 1) - (x < 0x1p-126f ? 12 : 0);
  uint32_t rounded = (uint32_t)((root + 1) >> 1);
  float result = float_of_bits(rounded + ((uint32_t)(half + 126) << 23));
  result = x > 0 && x < INF_F32 ? result : x;
  return x < 0 ? NAN_F32 : result;
#endif
}

/// exp(x) - 1 for |x| <= 0.347. Pairs of terms do not wait for each other.
INLINE float exp_rest_f32(float x) {
  float z = x * x;
  float high = (0x1.6a2318p-10f * x + 0x1.123a8ep-7f) * z + (0x1.5558f6p-5f * x + 0x1.55549p-3f);
  return z * (high * x + 0x1.fffffcp-2f) + x;
}

/// exp(x) for x up to 89. Cody and Waite: x = k ln 2 + r with ln 2 in two parts, the first of 15 bits, so that k times it is
/// exact. The bits of `shifted` end with k + 254, which is the sum of the exponents of two powers of two: one alone would
/// overflow.
INLINE float exp_below_89_f32(float x) {
  x = x < -105.0f ? -105.0f : x;
  float shifted = x * 0x1.715476p+0f + (ROUNDER_F32 + 254.0f);
  float k = shifted - (ROUNDER_F32 + 254.0f);
  float r = (x - k * 0x1.62e4p-1f) - k * 0x1.7f7d1cp-20f;
  uint32_t sum = bits_f32(shifted) << 23;
  uint32_t half = sum >> 1 & 0x7f800000u;
  float first = float_of_bits(half), second = float_of_bits(sum - half);
  return (first * exp_rest_f32(r) + first) * second;
}

/// 1.1 ULP.
INLINE float math_exp_f32(float x) { return exp_below_89_f32(x > 89.0f ? 89.0f : x); }

/// log(2^k (1 + f)) + error, for sqrt(1/2) <= 1 + f <= sqrt(2). Pairs of terms do not wait for each other.
INLINE float log_of_parts_f32(float k, float f, float error) {
  float z = f * f;
  float high = (0x1.145db2p-4f * z + (-0x1.de4018p-4f * f + 0x1.e6efdp-4f)) * z + (-0x1.fc214ap-4f * f + 0x1.233766p-3f);
  float tail = (high * z + (-0x1.555c52p-3f * f + 0x1.99a4b6p-3f)) * z + (-0x1.000006p-2f * f + 0x1.555548p-2f);
  float low = z * f * tail + k * 0x1.7f7d1cp-20f + error;
  low = low - 0.5f * z;
  return (low + f) + k * 0x1.62e4p-1f;
}

/// 0.86 ULP. x = 2^k (1 + f), a polynomial in f.
INLINE float math_log_f32(float x) {
  bool tiny = x < 0x1p-126f;
  uint32_t bits = bits_f32(tiny ? x * 0x1p23f : x) - 0x3f3504f3u;
  float k = (float)((int32_t)bits >> 23) - (tiny ? 23.0f : 0.0f);
  float f = float_of_bits((bits & 0x7fffff) + 0x3f3504f3u) - 1.0f;
  float result = log_of_parts_f32(k, f, -0.0f);  // adding 0 would be an operation
  result = x > 0 ? result : x == 0 ? -INF_F32 : NAN_F32;
  return x == INF_F32 ? x : result;
}

/// 0.87 ULP. The logarithm of the rounded sum 1 + x, and the first order of what rounding it lost (Kahan).
INLINE float math_log1p_f32(float x) {
#pragma clang fp contract(off)
  float sum = 1.0f + x;
  float lost = x < 1.0f ? x - (sum - 1.0f) : 1.0f - (sum - x);
  uint32_t bits = bits_f32(sum) - 0x3f3504f3u;
  float k = (float)((int32_t)bits >> 23);
  uint32_t exponent = bits & 0xff800000u;
  float scale = float_of_bits(0x3f800000u - exponent);
  float f = float_of_bits((bits & 0x7fffff) + 0x3f3504f3u) - 1.0f;
  // Below 2^-24 nothing of x is left in the sum: lost is all of x, and f is 0.
  float error = x < 0x1p60f ? lost * scale / (1.0f + f) : 0.0f;
  float result = log_of_parts_f32(k, f, error);
  result = x < INF_F32 && x != 0 ? result : x;
  result = x == -1.0f ? -INF_F32 : result;
  return x < -1.0f ? NAN_F32 : result;
}

/// log2(x) in double precision for a positive finite x, relative error below 2^-43: log2(2^k m) = k + 2 atanh(s) / ln 2 with
/// s = (m - 1) / (m + 1).
INLINE double log2_wide(double x) {
  uint64_t bits = bits_f64(x) - 0x3fe6a09e667f3bcdu + (1023ull << 52);
  double k = double_of_bits(bits >> 52 | 0x4330000000000000u) - (0x1p52 + 1023);
  double m = double_of_bits((bits & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu);
  double s = (m - 1.0) / (m + 1.0);
  double z = s * s;
  return s * (((((0x1.21b85cf681fdep-2 * z + 0x1.4794d3758815bp-2) * z + 0x1.a61a31e8ae81ap-2) * z
      + 0x1.2776c28f6121fp-1) * z + 0x1.ec709dc53fb96p-1) * z + 0x1.71547652b824fp+1) + k;
}

/// 2^t in double precision for |t| < 1000, relative error below 2^-34.
INLINE double exp2_wide(double t) {
  double shifted = t + 0x1.8p52;
  double f = t - (shifted - 0x1.8p52);
  double power = ((((((0x1.fe17a4267738cp-17 * f + 0x1.446a20fd6df01p-13) * f + 0x1.5d8a70679d924p-10) * f
      + 0x1.3b29dc3f1db16p-7) * f + 0x1.c6b08aaf5ae73p-5) * f + 0x1.ebfbe0a4c10fep-3) * f
      + 0x1.62e42ff115fe7p-1) * f + 0x1.ffffffffabbbap-1;
  return power * double_of_bits((bits_f64(shifted) << 52) + 0x3ff0000000000000u);
}

/// 0.51 ULP. 2^(y log2 |x|), in double precision inside: a product of 24 and 30 exact bits is what the result needs.
INLINE float math_pow_f32(float x, float y) {
  float size = __builtin_fabsf(x);
  double log2 = log2_wide(size);
  log2 = size == 0 ? -__builtin_inf() : log2;
  log2 = size == INF_F32 ? __builtin_inf() : log2;
  double t = y * log2;
  t = t > 200.0 ? 200.0 : t;
  t = t < -200.0 ? -200.0 : t;
  float result = (float)exp2_wide(t);
  float half = y * 0.5f;
  bool integer = math_trunc_f32(y) == y;
  bool odd = integer && math_trunc_f32(half) != half;
  uint32_t sign = odd ? bits_f32(x) & 0x80000000u : 0;
  result = float_of_bits(bits_f32(result) | sign);
  result = x < 0 && size < INF_F32 && !integer ? NAN_F32 : result;
  result = x != x || y != y ? NAN_F32 : result;
  result = size == 1.0f && __builtin_fabsf(y) == INF_F32 ? 1.0f : result;
  return x == 1.0f || y == 0 ? 1.0f : result;
}

/// 2.0 ULP. (1 - e) / (1 + e) with e = exp(-2|x|) = 2^k (1 + p), where 1 - 2^k and 1 + 2^k are exact: close to 0, where k is 0,
/// only p is left of the dividend.
INLINE float math_tanh_f32(float x) {
  float size = __builtin_fabsf(x);
  size = size > 10.0f ? 10.0f : size;
  float shifted = (ROUNDER_F32 + 127.0f) - size * 0x1.715476p+1f;
  float k = shifted - (ROUNDER_F32 + 127.0f);
  float r = ((size + size) + k * 0x1.62e4p-1f) + k * 0x1.7f7d1cp-20f;
  float scale = float_of_bits(bits_f32(shifted) << 23);
  float part = scale * exp_rest_f32(-r);
  return __builtin_copysignf(((1.0f - scale) - part) / ((1.0f + scale) + part), x);
}

/// 2.0 ULP. 1 / (1 + e) with e = exp(-x) = 2^k (1 + p). All is taken times 1.75 * 2^-24: 1 + e does not overflow where the result is
/// subnormal, and where 1 / (1 + e) is just below a power of two, the divisor is not just above one, so that its rounding counts less.
INLINE float math_sigmoid_f32(float x) {
  x = x > 18.0f ? 18.0f : x;
  x = x < -104.0f ? -104.0f : x;
  float shifted = (ROUNDER_F32 + 103.0f) - x * 0x1.715476p+0f;
  float k = shifted - (ROUNDER_F32 + 103.0f);
  float r = (x + k * 0x1.62e4p-1f) + k * 0x1.7f7d1cp-20f;
  float scale = float_of_bits(bits_f32(shifted) << 23 | 0x600000u);
  float sum = scale * exp_rest_f32(-r) + (scale + 0x1.cp-24f);
  return 0x1.cp-24f / sum;
}

/// 1.9 ULP. max(x, 0) + log(1 + e) with e = exp(-|x|): as e is at most 1, a polynomial is the logarithm, without a division, and
/// nothing of a small e is lost. Its quadratic term is exactly a half, and e is added last, so that little is rounded twice.
INLINE float math_softplus_f32(float x) {
  float e = exp_below_89_f32(-__builtin_fabsf(x));
  float z = e * e, square = z * z;
  float high = (-0x1.e1f04ep-9f * e + 0x1.665d4ep-6f) * z + (-0x1.f3074ep-5f * e + 0x1.c391acp-4f);
  float low = (-0x1.3edbb6p-3f * e + 0x1.94f9eap-3f) * z + (-0x1.ff7d5cp-3f * e + 0x1.55527ep-2f);
  float cube = (high * square + low) * e;
  return (cube * z + ((x > 0 ? x : 0.0f) - 0.5f * z)) + e;
}

/// A polynomial from the coefficient of its highest power down, a loop where code is to be small.
INLINE float polynomial_f32(float x, const float *coefficients, int count) {
  float sum = coefficients[0];
  if (libjit_small)
    ROLLED for (int i = 1; i < count; i++) sum = sum * x + coefficients[i];
  else
    UNROLL for (int i = 1; i < count; i++) sum = sum * x + coefficients[i];
  return sum;
}

/// 2^x for -100 < x < 100, to 2 ULP, in little code.
INLINE float exp2_short_f32(float x) {
  static const float powers[] = {0x1.41d334p-13f, 0x1.5f456ap-10f, 0x1.3b2dbcp-7f, 0x1.c6aed4p-5f,
                                 0x1.ebfbdap-3f,  0x1.62e43p-1f,   1.0f};
  float shifted = x + ROUNDER_F32;
  float power = polynomial_f32(x - (shifted - ROUNDER_F32), powers, 7);
  return power * float_of_bits((bits_f32(shifted) - 0x4b400000u + 127) << 23);
}

/// 2.0 ULP. x + x P(x^2) up to where P is no longer good, from there on 1 - Q(x)^4 or 1 - Q(x)^8, where Q is a fit to that root of
/// erfc(x). Where a mask chooses between numbers for less than a multiplication costs, P and Q have as many coefficients, and only
/// what is wanted is computed. Elsewhere both are, of pairs of terms that do not wait for each other.
INLINE float math_erf_f32(float x) {
#if CHOICES_ARE_CHEAP
  static const float near[] = {0x1.122322p-14f, -0x1.8cae0ep-11f, 0x1.505392p-8f, -0x1.b76e1ep-6f,
      0x1.ce23b8p-4f, -0x1.812704p-2f, 0x1.06eba6p-3f};
  static const float far[] = {0x1.616836p-13f, -0x1.5e855cp-9f, 0x1.c5878ep-7f, -0x1.bac8c8p-7f,
      -0x1.e096dcp-5f, -0x1.2ce7cp-3f, 0x1.00588cp+0f};
  float size = __builtin_fabsf(x);
  float a = size > 4.0f ? 4.0f : size;
  bool small = a < 1.2f;
  float z = small ? a * a : a;
  float sum = small ? near[0] : far[0];
  UNROLL for (int i = 1; i < 7; i++) sum = sum * z + (small ? near[i] : far[i]);
  float square = sum * sum, rest = square * square;
  return __builtin_copysignf(small ? a * sum + a : 1.0f - rest * rest, x);
#else
  float size = __builtin_fabsf(x);
  float a = size > 4.0f ? 4.0f : size;
  float z = a * a, square = z * z;
  float small = ((0x1.1ccdfcp-14f * z - 0x1.91d44p-11f) * square + (0x1.5140b6p-8f * z - 0x1.b7952cp-6f)) * square
      + (0x1.ce269cp-4f * z - 0x1.812718p-2f);
  small = small * z + 0x1.06eba6p-3f;
  float root = (((-0x1.82e5dp-13f * a + 0x1.b11eb4p-9f) * z + (-0x1.72be86p-6f * a + 0x1.144d6ep-4f)) * z
      + (-0x1.b235eap-5f * a - 0x1.f08fe6p-5f)) * z + (-0x1.3df17p-2f * a + 0x1.0184e6p+0f);
  float rest = root * root;
  return __builtin_copysignf(a < 1.16f ? a * small + a : 1.0f - rest * rest, x);
#endif
}

/// A quarter turn count (modulo 4) and an angle of at most pi / 4 that is left.
typedef struct {
  uint32_t quarters;
  float angle;
} turn_f32_t;

/// The same with the angle in double precision.
typedef struct {
  uint32_t quarters;
  double angle;
} wide_turn_f32_t;

/// One of five words, without a load.
INLINE uint32_t choose_word(uint32_t at, uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3, uint32_t w4) {
  uint32_t low = at & 1 ? w1 : w0, high = at & 1 ? w3 : w2;
  uint32_t word = at & 2 ? high : low;
  return at & 4 ? w4 : word;
}

INLINE uint32_t funnel_u32(uint32_t high, uint32_t low, uint32_t shift) {
  return (uint32_t)(((uint64_t)high << 32 | low) << shift >> 32);
}

/// Payne and Hanek for every finite size >= 0, without a branch and without a gather: 96 bits of 2 / pi, taken where the product
/// with the mantissa is between 2^2 and 2^-94, are selected among eight words; whole turns drop out by overflow.
INLINE wide_turn_f32_t reduce_wide(float size) {
  uint32_t bits = bits_f32(size);
  uint32_t position = (bits >> 23) - 120;
  uint32_t from = position >> 5, shift = position & 31;
  uint64_t mantissa = (bits & 0x7fffff) | 0x800000;
  uint32_t w0 = choose_word(from, 0, 0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0);
  uint32_t w1 = choose_word(from, 0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599);
  uint32_t w2 = choose_word(from, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041);
  uint32_t w3 = choose_word(from, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab);
  uint64_t product = mantissa * funnel_u32(w1, w2, shift) + (mantissa * funnel_u32(w2, w3, shift) >> 32);
  uint32_t high = (uint32_t)mantissa * funnel_u32(w0, w1, shift) + (uint32_t)(product >> 32);
  uint32_t low = (uint32_t)product;
  uint32_t quarters = (high + 0x20000000u) >> 30;
  int32_t fraction = (int32_t)(high << 2 | low >> 30);
  int32_t rest = (int32_t)(low << 2 >> 1);
  double angle = ((double)fraction + (double)rest * 0x1p-31) * 0x1.921fb54442d18p-32;
  bool reduced = size > 0x1.921fb4p-1f;
  return (wide_turn_f32_t){reduced ? quarters : 0, reduced ? angle : (double)size};
}

INLINE turn_f32_t reduce_f32(float size) {
  wide_turn_f32_t turn = reduce_wide(size);
  return (turn_f32_t){turn.quarters, (float)turn.angle};
}

/// sin(angle + quarters pi / 2).
INLINE float sin_of_turn_f32(uint32_t quarters, float angle) {
  float z = angle * angle;
  float sin = angle * z * (((0x1.6cd734p-19f * z - 0x1.a00f98p-13f) * z + 0x1.111108p-7f) * z - 0x1.555556p-3f) + angle;
  float cos = z * z * (((-0x1.241dbep-22f * z + 0x1.a010dap-16f) * z - 0x1.6c16b8p-10f) * z
      + 0x1.555556p-5f) + (1.0f - 0.5f * z);
  float result = quarters & 1 ? cos : sin;
  return float_of_bits(bits_f32(result) ^ (quarters << 30 & 0x80000000u));
}

/// 1.6 ULP, of arguments up to the largest too.
INLINE float math_sin_f32(float x) {
  turn_f32_t turn = reduce_f32(__builtin_fabsf(x));
  float result = sin_of_turn_f32(turn.quarters, turn.angle);
  result = float_of_bits(bits_f32(result) ^ (bits_f32(x) & 0x80000000u));
  return __builtin_fabsf(x) < INF_F32 ? result : x - x;
}

/// 1.6 ULP, of arguments up to the largest too.
INLINE float math_cos_f32(float x) {
  turn_f32_t turn = reduce_f32(__builtin_fabsf(x));
  float result = sin_of_turn_f32(turn.quarters + 1, turn.angle);
  return __builtin_fabsf(x) < INF_F32 ? result : x - x;
}

/// Rounded to f32, and by nobody at once to fewer digits: that would be another number.
INLINE float narrowed(double x) {
#pragma clang fp contract(off)
  return (float)x;
}

/// tan(angle) for |angle| <= pi / 4, or of what is a quarter turn further, in double precision.
INLINE double tan_of_turn_wide(uint32_t quarters, double angle) {
  double z = angle * angle;
  double sin = angle * z * (((0x1.6cd1f60e93cap-19 * z - 0x1.a00f7f3e95f63p-13) * z + 0x1.1111086a896cp-7)
      * z - 0x1.5555554c7216ep-3) + angle;
  double cos = z * ((((-0x1.23c981558e3e1p-22 * z + 0x1.a00eb9c49c17dp-16) * z - 0x1.6c16b348f10f2p-10)
      * z + 0x1.55555545c5792p-5) * z - 0x1.ffffffffe98bbp-2) + 1.0;
  return quarters & 1 ? -cos / sin : sin / cos;
}

/// 0.51 ULP, of arguments up to the largest too; in double precision inside, as all that follow.
INLINE float math_tan_f32(float x) {
  wide_turn_f32_t turn = reduce_wide(__builtin_fabsf(x));
  float result = narrowed(tan_of_turn_wide(turn.quarters, turn.angle));
  result = float_of_bits(bits_f32(result) ^ (bits_f32(x) & 0x80000000u));
  return __builtin_fabsf(x) < INF_F32 ? result : x - x;
}

/// asin(x) for |x| <= 0.5 in double precision, relative error below 2^-35.
INLINE double asin_wide(double x) {
  double z = x * x;
  return x * z * ((((((0x1.1bd19aedaa0fep-5 * z + 0x1.ec2b87682ee7cp-8) * z + 0x1.931ef85f7d96bp-6)
      * z + 0x1.ed5d343e664d6p-6) * z + 0x1.6ddabea3cf976p-5) * z + 0x1.3332aa0ce2426p-4) * z + 0x1.55555605c1b82p-3) + x;
}

/// 0.51 ULP. From 0.5 on the angle whose sine is that of half the rest of a right angle.
INLINE float math_asin_f32(float x) {
  double size = __builtin_fabs((double)x);
  bool far = size > 0.5;
  double angle = asin_wide(far ? math_sqrt_f64((1.0 - size) * 0.5) : size);
  return __builtin_copysignf(narrowed(far ? 0x1.921fb54442d18p+0 - 2.0 * angle : angle), x);
}

/// 0.51 ULP.
INLINE float math_acos_f32(float x) {
  double wide = x, size = __builtin_fabs(wide);
  bool far = size > 0.5;
  double angle = asin_wide(far ? math_sqrt_f64((1.0 - size) * 0.5) : wide);
  double outer = x < 0 ? 0x1.921fb54442d18p+1 - 2.0 * angle : 2.0 * angle;
  return narrowed(far ? outer : 0x1.921fb54442d18p+0 - angle);
}

/// 0.51 ULP. Beyond 1 what the inverse lacks of a right angle.
INLINE float math_atan_f32(float x) {
  double size = __builtin_fabs((double)x);
  double a = size > 1.0 ? 1.0 / size : size;
  double z = a * a;
  double angle = a * z * (((((((((((0x1.ce19fd507b577p-12 * z - 0x1.b4027338d9d59p-9) * z + 0x1.81f64ff2b8acp-7)
      * z - 0x1.b2f53ebe34815p-6) * z + 0x1.69ea1da5ee087p-5) * z - 0x1.f02f67d596b4ap-5) * z + 0x1.33a15da8a3d5dp-4)
      * z - 0x1.72d62aa82665dp-4) * z + 0x1.c6e85985f133bp-4) * z - 0x1.2490390ba744ap-3) * z + 0x1.9999846ac6bcap-3)
      * z - 0x1.5555552f232a7p-2) + a;
  return __builtin_copysignf(narrowed(size > 1.0 ? 0x1.921fb54442d18p+0 - angle : angle), x);
}

/// 0.51 ULP. An odd polynomial near zero.
INLINE float math_sinh_f32(float x) {
  double size = __builtin_fabs((double)x);
  double z = size * size;
  double small = size * z * ((0x1.a0cba42487e8bp-13 * z + 0x1.1110f757a732bp-7) * z + 0x1.5555555991105p-3) + size;
  double power = exp2_wide((size > 100.0 ? 100.0 : size) * 0x1.71547652b82fep+0);
  return __builtin_copysignf(narrowed(size < 0.25 ? small : 0.5 * (power - 1.0 / power)), x);
}

/// 0.51 ULP.
INLINE float math_cosh_f32(float x) {
  double size = __builtin_fabs((double)x);
  double power = exp2_wide((size > 100.0 ? 100.0 : size) * 0x1.71547652b82fep+0);
  return narrowed(0.5 * (power + 1.0 / power));
}

/// 0.51 ULP.
INLINE float math_asinh_f32(float x) {
  double size = __builtin_fabs((double)x);
  double small = size - size * size * size * 0x1.5555555555555p-3;
  double large = log2_wide(size + math_sqrt_f64(size * size + 1.0)) * 0x1.62e42fefa39efp-1;
  float result = narrowed(size < 0x1p-12 ? small : large);
  return __builtin_copysignf(size < __builtin_inf() ? result : narrowed(size), x);
}

/// 0.51 ULP.
INLINE float math_acosh_f32(float x) {
  double wide = x;
  double result = log2_wide(wide + math_sqrt_f64((wide - 1.0) * (wide + 1.0))) * 0x1.62e42fefa39efp-1;
  result = x < INF_F32 ? result : wide;
  return x >= 1.0f ? narrowed(result) : NAN_F32;
}

/// 0.51 ULP.
INLINE float math_atanh_f32(float x) {
  double size = __builtin_fabs((double)x);
  double small = size + size * size * size * 0x1.5555555555555p-2;
  double large = 0.5 * log2_wide((1.0 + size) / (1.0 - size)) * 0x1.62e42fefa39efp-1;
  double result = size < 0x1p-12 ? small : large;
  result = size < 1.0 ? result : __builtin_inf();
  return size <= 1.0 ? __builtin_copysignf(narrowed(result), x) : NAN_F32;
}

#endif
