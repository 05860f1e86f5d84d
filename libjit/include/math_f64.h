/// Double precision mathematics; included by math.h, which states the rules.
#ifndef LIBJIT_MATH_F64_H
#define LIBJIT_MATH_F64_H

#define INF_F64 __builtin_inf()
#define NAN_F64 __builtin_nan("")

/// Adding it leaves the rounded sum in the low bits of the mantissa, for sums below 2^51.
#define ROUNDER_F64 0x1.8p52

INLINE double math_abs_f64(double x) { return __builtin_fabs(x); }

#if ROUNDING_IN_HARDWARE
INLINE double math_round_f64(double x) { return __builtin_elementwise_rint(x); }
INLINE double math_floor_f64(double x) { return __builtin_elementwise_floor(x); }
INLINE double math_ceil_f64(double x) { return __builtin_elementwise_ceil(x); }
INLINE double math_trunc_f64(double x) { return __builtin_elementwise_trunc(x); }
#else
/// Rounds half to even. From 2^52 on every number is an integer.
INLINE double math_round_f64(double x) {
#pragma clang fp contract(off)
  double size = __builtin_fabs(x);
  double rounded = (size + 0x1p52) - 0x1p52;
  return __builtin_copysign(size < 0x1p52 ? rounded : x, x);
}

INLINE double math_floor_f64(double x) {
  double rounded = math_round_f64(x);
  return __builtin_copysign(rounded > x ? rounded - 1.0 : rounded, x);
}

INLINE double math_ceil_f64(double x) {
  double rounded = math_round_f64(x);
  return __builtin_copysign(rounded < x ? rounded + 1.0 : rounded, x);
}

INLINE double math_trunc_f64(double x) { return __builtin_copysign(math_floor_f64(__builtin_fabs(x)), x); }
#endif

/// Correctly rounded: with one digit more than the result has, no root lies half way.
INLINE double math_sqrt_f64(double x) {
#if SQRT_F64_IN_HARDWARE
  return __builtin_elementwise_sqrt(x);
#else
  uint64_t bits = bits_f64(x < 0x1p-1022 ? x * 0x1p54 : x);
  int32_t exponent = (int32_t)(bits >> 52) - 1023;
  uint64_t mantissa = (bits & 0xfffffffffffffu) | 0x10000000000000u;
  uint64_t root = root_digits(mantissa << (10 + (exponent & 1)), 54);
  int32_t half = (exponent >> 1) - (x < 0x1p-1022 ? 27 : 0);
  double result = double_of_bits(((root + 1) >> 1) + ((uint64_t)(half + 1022) << 52));
  result = x > 0 && x < INF_F64 ? result : x;
  return x < 0 ? NAN_F64 : result;
#endif
}

/// An unevaluated sum, |low| <= ulp(high) / 2: about 106 bits.
typedef struct {
  double high, low;
} pair_t;

/// The sum of two numbers, exactly, where |a| >= |b| or a is 0 (Dekker).
INLINE pair_t add_ordered(double a, double b) {
#pragma clang fp contract(off)
  double sum = a + b;
  return (pair_t){sum, b - (sum - a)};
}

/// The same of any two numbers (Knuth).
INLINE pair_t add_exactly(double a, double b) {
#pragma clang fp contract(off)
  double sum = a + b;
  double part = sum - a;
  return (pair_t){sum, (a - (sum - part)) + (b - part)};
}

/// The product of two numbers, exactly: by one fused operation, or from halves of 26 bits (Veltkamp and Dekker).
INLINE pair_t multiply_exactly(double a, double b) {
#pragma clang fp contract(off)
  double product = a * b;
#if FMA_F64_IN_HARDWARE
  return (pair_t){product, __builtin_fma(a, b, -product)};
#else
  double split_a = a * 0x8000001p0, split_b = b * 0x8000001p0;
  double high_a = split_a - (split_a - a), high_b = split_b - (split_b - b);
  double low_a = a - high_a, low_b = b - high_b;
  double error = ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b;
  return (pair_t){product, error};
#endif
}

/// Product of two pairs, relative error below 2^-100.
INLINE pair_t multiply_pairs(pair_t a, pair_t b) {
#pragma clang fp contract(off)
  pair_t product = multiply_exactly(a.high, b.high);
  return add_ordered(product.high, product.low + (a.high * b.low + a.low * b.high));
}

/// Sum of two pairs, where |a| >= |b|.
INLINE pair_t add_pairs(pair_t a, pair_t b) {
#pragma clang fp contract(off)
  pair_t sum = add_ordered(a.high, b.high);
  return add_ordered(sum.high, sum.low + (a.low + b.low));
}

/// Quotient of two pairs, relative error below 2^-100.
INLINE pair_t divide_pairs(pair_t a, pair_t b) {
#pragma clang fp contract(off)
  double quotient = a.high / b.high;
  pair_t product = multiply_exactly(quotient, b.high);
  double rest = (((a.high - product.high) - product.low) + a.low) - quotient * b.low;
  return (pair_t){quotient, rest / b.high};
}

/// The integer, below 2^52 in size, that `shifted - ROUNDER_F64` is.
INLINE int64_t integer_of_shifted(double shifted) { return (int64_t)(bits_f64(shifted) - 0x4338000000000000u); }

/// number * 2^power for |power| < 2000, rounded once: in two steps, so that neither factor overflows. The shifts are of numbers
/// made positive, because vectors of 64 bits often lack the arithmetic shift.
INLINE double scale_f64(double number, int64_t power) {
  uint64_t positive = (uint64_t)(power + 4096);
  uint64_t half = positive >> 1;
  double first = double_of_bits((half - 2048 + 1023) << 52);
  double second = double_of_bits((positive - half - 2048 + 1023) << 52);
  return number * first * second;
}

/// exp(x) - 1 - x, divided by x^2, for |x| <= 0.347.
INLINE double exp_tail_f64(double x) {
  return (((((((((0x1.1e3e54a829eafp-29 * x + 0x1.af6c89823488p-26) * x + 0x1.27e5b3f2dcadbp-22) * x
      + 0x1.71ddefc4eb18cp-19) * x + 0x1.a01a01368141p-16) * x + 0x1.a01a01b3a2b8ap-13) * x
      + 0x1.6c16c16c3056ap-10) * x + 0x1.111111110ebffp-7) * x + 0x1.5555555555503p-5) * x
      + 0x1.555555555555bp-3) * x + 0x1p-1;
}

/// exp(x + error) / 2^k as a sum of two numbers, the first of which is the larger, for a small error, x in [-746, 711] or NaN;
/// `shifted` is k + ROUNDER_F64.
INLINE pair_t exp_parts_f64(double x, double error, double *shifted_of) {
  double shifted = x * 0x1.71547652b82fep+0 + ROUNDER_F64;
  double k = shifted - ROUNDER_F64;
  double whole = x - k * 0x1.62e42feep-1;
  double r = whole - k * 0x1.a39ef35793c76p-33;
  // What the roundings of r and of 1 + r lost.
  double lost = ((whole - r) - k * 0x1.a39ef35793c76p-33) + error;
  double sum = 1.0 + r;
  double tail = r * r * exp_tail_f64(r);
  *shifted_of = shifted;
  return (pair_t){sum, (r - (sum - 1.0)) + (tail + lost * (sum + tail))};
}

/// exp(x + error) for a small error, x in [-746, 710] or NaN.
INLINE double exp_of_sum_f64(double x, double error) {
  double shifted;
  pair_t parts = exp_parts_f64(x, error, &shifted);
  return scale_f64(parts.high + parts.low, integer_of_shifted(shifted));
}

/// 0.76 ULP. Cody and Waite: x = k ln 2 + r with ln 2 in two parts, the first of 32 bits, so that k times it is exact.
INLINE double math_exp_f64(double x) {
  x = x > 710.0 ? 710.0 : x;
  x = x < -746.0 ? -746.0 : x;
  return exp_of_sum_f64(x, 0.0);
}

/// x = 2^k m with sqrt(1/2) <= m < sqrt(2), for a positive finite x.
typedef struct {
  double k, m;
} binary_f64_t;

INLINE binary_f64_t binary_of_f64(double x) {
  bool tiny = x < 0x1p-1022;
  uint64_t bits = bits_f64(tiny ? x * 0x1p54 : x) - 0x3fe6a09e667f3bcdu + (1023ull << 52);
  double k = double_of_bits(bits >> 52 | 0x4330000000000000u) - (0x1p52 + 1023);
  return (binary_f64_t){k - (tiny ? 54.0 : 0.0), double_of_bits((bits & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu)};
}

/// log(2^k (1 + f)) + error. log(1 + f) = 2 atanh(s) with s = f / (2 + f), arranged so that f itself is the leading term.
INLINE double log_of_parts_f64(double k, double f, double error) {
  double s = f / (2.0 + f);
  double z = s * s;
  double tail = z * ((((((0x1.2f0d95532fec4p-3 * z + 0x1.39a0f46230521p-3) * z + 0x1.7466463213cf5p-3) * z
      + 0x1.c71c51e7e21d7p-3) * z + 0x1.2492494217aecp-2) * z + 0x1.999999997fb32p-2) * z + 0x1.5555555555593p-1);
  double half_square = 0.5 * f * f;
  double low = s * (half_square + tail) + (k * 0x1.a39ef35793c76p-33 + error);
  return k * 0x1.62e42feep-1 + (f - (half_square - low));
}

/// log(2^twos (sum + lost)), where what is lost is small.
INLINE double log_of_sum_f64(double sum, double lost, double twos) {
  binary_f64_t binary = binary_of_f64(sum);
  return log_of_parts_f64(binary.k + twos, binary.m - 1.0, lost / sum);
}

/// 0.86 ULP.
INLINE double math_log_f64(double x) {
  binary_f64_t binary = binary_of_f64(x);
  double result = log_of_parts_f64(binary.k, binary.m - 1.0, 0.0);
  result = x < INF_F64 ? result : x;
  result = x == 0 ? -INF_F64 : result;
  return x < 0 ? NAN_F64 : result;
}

/// 0.86 ULP. The logarithm of the rounded sum 1 + x, and the first order of what rounding it lost (Kahan).
INLINE double math_log1p_f64(double x) {
#pragma clang fp contract(off)
  double sum = 1.0 + x;
  double lost = x < 1.0 ? x - (sum - 1.0) : 1.0 - (sum - x);
  // Beyond 2^60 nothing is lost that counts, and it may be a NaN.
  double result = log_of_sum_f64(sum, x < 0x1p60 ? lost : 0.0, 0.0);
  result = x < INF_F64 && x != 0 ? result : x;
  result = x == -1.0 ? -INF_F64 : result;
  return x < -1.0 ? NAN_F64 : result;
}

/// log(x) for a positive finite x as a pair, relative error below 2^-70: 2 atanh(s) with s = (m - 1) / (m + 1), where the first
/// three terms of the series in s^2 are pairs.
INLINE pair_t log_pair(double x) {
#pragma clang fp contract(off)
  binary_f64_t binary = binary_of_f64(x);
  double f = binary.m - 1.0;
  pair_t divisor = add_ordered(2.0, f);
  double quotient = f / divisor.high;
  pair_t back = multiply_exactly(quotient, divisor.high);
  double rest = ((f - back.high) - back.low) - quotient * divisor.low;
  pair_t s = add_ordered(quotient, rest / divisor.high);
  pair_t z = multiply_pairs(s, s);
  double tail = z.high * ((((((((0x1.9feddb526ba46p-4 * z.high + 0x1.81a9306f304bfp-4) * z.high
      + 0x1.af575e3644b1p-4) * z.high + 0x1.e1e0af3f8e229p-4) * z.high + 0x1.1111139030ceap-3) * z.high
      + 0x1.3b13b13478756p-3) * z.high + 0x1.745d1745dc122p-3) * z.high + 0x1.c71c71c71c688p-3) * z.high
      + 0x1.2492492492492p-2);
  pair_t series = add_pairs((pair_t){0x1.999999999999ap-2, -0x1.999999999999ap-56}, (pair_t){tail, 0.0});
  series = add_pairs((pair_t){0x1.5555555555555p-1, 0x1.5555555555555p-55}, multiply_pairs(z, series));
  series = add_pairs((pair_t){2.0, 0.0}, multiply_pairs(z, series));
  pair_t log = multiply_pairs(s, series);
  pair_t whole = multiply_pairs((pair_t){binary.k, 0.0}, (pair_t){0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56});
  return add_pairs(whole, log);
}

/// 0.76 ULP. exp(y log |x|) with a logarithm of 106 bits.
INLINE double math_pow_f64(double x, double y) {
  double size = __builtin_fabs(x);
  pair_t log = log_pair(size);
  log.high = size == 0 ? -INF_F64 : size == INF_F64 ? INF_F64 : log.high;
  // |log| is at least 2^-53 unless it is 0: a larger |y| changes nothing, but would overflow in the exact product.
  double factor = y > 0x1p64 ? 0x1p64 : y;
  factor = factor < -0x1p64 ? -0x1p64 : factor;
  pair_t t = multiply_exactly(factor, log.high);
  double error = t.low + factor * log.low;
  double exponent = t.high > 710.0 ? 710.0 : t.high;
  exponent = exponent < -746.0 ? -746.0 : exponent;
  double result = exp_of_sum_f64(exponent, exponent == t.high ? error : 0.0);
  double half = y * 0.5;
  bool integer = math_trunc_f64(y) == y;
  bool odd = integer && math_trunc_f64(half) != half;
  uint64_t sign = odd ? bits_f64(x) & 0x8000000000000000u : 0;
  result = double_of_bits(bits_f64(result) | sign);
  result = x < 0 && size < INF_F64 && !integer ? NAN_F64 : result;
  result = x != x || y != y ? NAN_F64 : result;
  result = size == 1.0 && __builtin_fabs(y) == INF_F64 ? 1.0 : result;
  return x == 1.0 || y == 0 ? 1.0 : result;
}

/// 1.4 ULP. An odd polynomial near zero, 1 - 2 / (exp(2x) + 1) from 0.625 on.
INLINE double math_tanh_f64(double x) {
  double size = __builtin_fabs(x);
  double z = size * size;
  double small = size * z * (((((((((((0x1.9432a8123d601p-18 * z - 0x1.f9b9c886a7e2ap-16) * z
      + 0x1.7fd844151a24dp-14) * z - 0x1.f0ffdcacc1c82p-13) * z + 0x1.3509be944fc53p-11) * z
      - 0x1.7d9bfb7a6c17dp-10) * z + 0x1.d6d355b0b418ep-9) * z - 0x1.226e32b04e916p-7) * z
      + 0x1.664f486faecbap-6) * z - 0x1.ba1ba1b9cbe6ap-5) * z + 0x1.1111111110bd5p-3) * z
      - 0x1.5555555555551p-2) + size;
  double large = 1.0 - 2.0 / (math_exp_f64(2.0 * size) + 1.0);
  return __builtin_copysign(size < 0.625 ? small : large, x);
}

/// 1.9 ULP. From exp(-|x|), which never overflows: e / (1 + e) on the left, 1 / (1 + e) on the
/// right, less what the rounding of 1 + e adds.
INLINE double math_sigmoid_f64(double x) {
  double e = math_exp_f64(-__builtin_fabs(x));
  double sum = 1.0 + e;
  double lost = e - (sum - 1.0);
  double quotient = (x < 0 ? e : 1.0) / sum;
  double inverse = x < 0 ? 1.0 - quotient : quotient;
  return quotient - quotient * (lost * inverse);
}

/// 1.6 ULP. max(x, 0) + log(1 + exp(-|x|)), in which nothing overflows.
INLINE double math_softplus_f64(double x) {
  return (x > 0 ? x : 0.0) + math_log1p_f64(math_exp_f64(-__builtin_fabs(x)));
}

/// 1.3 ULP. x + x P(x^2) up to 1, from there on 1 - exp(Q(x)), where Q is a fit to log(erfc(x)).
INLINE double math_erf_f64(double x) {
  double size = __builtin_fabs(x);
  double z = size * size;
  double small = size * (((((((((((((-0x1.29290bcfb5d4ap-38 * z + 0x1.7ecc020c2aeap-34) * z
      - 0x1.4e55ce98a780ap-30) * z + 0x1.fc4117843f978p-27) * z - 0x1.5f6d6b591d5b8p-23) * z
      + 0x1.b9e64d087b72p-20) * z - 0x1.f4d255e15213cp-17) * z + 0x1.f9a326bfb7966p-14) * z
      - 0x1.c02db3fed8fa3p-11) * z + 0x1.565bcd0e64ab8p-8) * z - 0x1.b82ce3128899bp-6) * z
      + 0x1.ce2f21a042bddp-4) * z - 0x1.812746b0379e7p-2) * z + 0x1.06eba8214db69p-3) + size;
  double a = size > 6.0 ? 6.0 : size;
  double large = 1.0 - exp_of_sum_f64((((((((((((((((((0x1.5318db9e46ebdp-40 * a - 0x1.ded8a175e2f8ap-35) * a
      + 0x1.3c910d015a057p-30) * a - 0x1.0421293f8fed2p-26) * a + 0x1.29100df8202e8p-23) * a
      - 0x1.f239e1c41bac9p-21) * a + 0x1.3ab24508016bfp-18) * a - 0x1.2b3ba52f174cp-16) * a
      + 0x1.99c74836d86afp-15) * a - 0x1.4bde26c841089p-14) * a - 0x1.e28a215fa60d6p-16) * a
      + 0x1.43db4768a84ep-11) * a - 0x1.c8a05037c77b3p-10) * a + 0x1.0c7e29091df31p-12) * a
      + 0x1.38da117c7c808p-6) * a - 0x1.a4e33a44cf4ep-4) * a - 0x1.45f3c702fbf4ep-1) * a
      - 0x1.20dd61179735ap+0) * a - 0x1.e86a2bdaf646ap-24, 0.0);
  return __builtin_copysign(size < 1.0 ? small : large, x);
}

/// A quarter turn count (modulo 4) and an angle of at most pi / 4 that is left.
typedef struct {
  uint64_t quarters;
  pair_t angle;
} turn_f64_t;

/// Bits of 2 / pi, after 64 zeros: all that a double's exponent can reach.
static const uint32_t TWO_OVER_PI[42] = {
    0,          0,          0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab,
    0xdebbc561, 0xb7246e3a, 0x424dd2e0, 0x06492eea, 0x09d1921c, 0xfe1deb1c, 0xb129a73e, 0xe88235f5, 0x2ebb4484,
    0xe99c7026, 0xb45f7e41, 0x3991d639, 0x835339f4, 0x9c845f8b, 0xbdf9283b, 0x1ff897ff, 0xde05980f, 0xef2f118b,
    0x5a0a6d1f, 0x6d367ecf, 0x27cb09b7, 0x4f463f66, 0x9e5fea2d, 0x7527bac7, 0xebe5f17b, 0x3d0739f7, 0x8a5292ea,
    0x6bfb5fb1, 0x1f8d5d08, 0x56033046, 0xfc7b6bab, 0xf0cfbc20, 0x9af4361d};

/// 32 bits of 2 / pi, from bit 32 * word + shift on.
INLINE uint64_t bits_of_two_over_pi(uint64_t word, uint64_t shift) {
  return (uint32_t)(((uint64_t)TWO_OVER_PI[word] << 32 | TWO_OVER_PI[word + 1]) << shift >> 32);
}

/// A number below 2^32 as a double.
INLINE double double_of_word(uint64_t word) { return double_of_bits(word | 0x4330000000000000u) - 0x1p52; }

/// Payne and Hanek for every finite size >= 0, in words of 32 bits, which every vector unit can multiply: the product of the
/// mantissa with 192 bits of 2 / pi, between 2^2 and 2^-190; whole turns drop out by overflow. 128 bits are kept: enough for
/// the double that is nearest to a multiple of pi / 2.
INLINE turn_f64_t reduce_f64(double size) {
#pragma clang fp contract(off)
  uint64_t bits = bits_f64(size);
  // 0.5 and above reach this; the position is clamped to the table, for numbers whose reduction is not used.
  uint64_t exponent = bits >> 52;
  uint64_t position = (exponent < 1022 ? 1022 : exponent > 2046 ? 2046 : exponent) - 1013;
  uint64_t word = position >> 5, shift = position & 31;
  uint64_t low = bits & 0xffffffffu, high = (bits >> 32 & 0xfffffu) | 0x100000u;
  uint64_t w0 = bits_of_two_over_pi(word, shift), w1 = bits_of_two_over_pi(word + 1, shift);
  uint64_t w2 = bits_of_two_over_pi(word + 2, shift), w3 = bits_of_two_over_pi(word + 3, shift);
  uint64_t w4 = bits_of_two_over_pi(word + 4, shift), w5 = bits_of_two_over_pi(word + 5, shift);
  // Column sums from the lowest word up; p[i] of the comment has the weight of w[i] * low.
  uint64_t sum = (low * w5 >> 32) + (uint32_t)(high * w5) + (uint32_t)(low * w4);
  sum = (sum >> 32) + (low * w4 >> 32) + (high * w5 >> 32) + (uint32_t)(high * w4) + (uint32_t)(low * w3);
  uint64_t p3 = (uint32_t)sum;
  sum = (sum >> 32) + (low * w3 >> 32) + (high * w4 >> 32) + (uint32_t)(high * w3) + (uint32_t)(low * w2);
  uint64_t p2 = (uint32_t)sum;
  sum = (sum >> 32) + (low * w2 >> 32) + (high * w3 >> 32) + (uint32_t)(high * w2) + (uint32_t)(low * w1);
  uint64_t p1 = (uint32_t)sum;
  sum = (sum >> 32) + (low * w1 >> 32) + (high * w2 >> 32) + (uint32_t)(high * w1) + (uint32_t)(low * w0);
  uint64_t p0 = (uint32_t)sum;
  uint64_t quarters = (p0 + 0x20000000u) >> 30 & 3;
  // The fraction, between -1/2 and 1/2: the first word is made unsigned by adding 2^31.
  uint64_t f0 = (uint32_t)(p0 << 2 | p1 >> 30) ^ 0x80000000u;
  double d0 = double_of_bits(f0 | 0x4330000000000000u) - (0x1p52 + 0x1p31);
  double d1 = double_of_word((uint32_t)(p1 << 2 | p2 >> 30)) * 0x1p-32;
  double d2 = double_of_word((uint32_t)(p2 << 2 | p3 >> 30)) * 0x1p-64;
  double d3 = double_of_word((uint32_t)(p3 << 2)) * 0x1p-96;
  pair_t lead = add_ordered(d0, d1);
  pair_t fraction = add_ordered(lead.high, lead.low + (d2 + d3));
  pair_t angle = multiply_pairs(fraction, (pair_t){0x1.921fb54442d18p-32, 0x1.1a62633145c07p-86});
  bool reduced = size > 0x1.921fb54442d18p-1;
  return (turn_f64_t){reduced ? quarters : 0, {reduced ? angle.high : size, reduced ? angle.low : 0.0}};
}

/// sin(x) - x, divided by x^3, of z = x^2, for |x| <= pi / 4.
INLINE double sin_tail_f64(double z) {
  return (((((-0x1.aaa47c921dc52p-41 * z + 0x1.61209125eb5c3p-33) * z - 0x1.ae645295e05b8p-26) * z
      + 0x1.71de3a5337a4ap-19) * z - 0x1.a01a01a018acep-13) * z + 0x1.111111111110bp-7) * z - 0x1.5555555555555p-3;
}

/// cos(x) - 1 + x^2 / 2, divided by x^4.
INLINE double cos_tail_f64(double z) {
  return (((((0x1.aabc2081ad113p-45 * z - 0x1.939321f9be2fap-37) * z + 0x1.1eed8c8ee7aa7p-29) * z
      - 0x1.27e4fb75e9dedp-22) * z + 0x1.a01a01a018cb1p-16) * z - 0x1.6c16c16c16c0fp-10) * z + 0x1.5555555555555p-5;
}

/// sin(angle + quarters pi / 2).
INLINE double sin_of_turn_f64(uint64_t quarters, pair_t angle) {
  double x = angle.high;
  double z = x * x;
  double half = 0.5 * z;
  double sin = (x * z * sin_tail_f64(z) + angle.low * (1.0 - half)) + x;
  double lead = 1.0 - half;
  double cos = lead + (((1.0 - lead) - half) + (z * z * cos_tail_f64(z) - x * angle.low));
  double result = quarters & 1 ? cos : sin;
  return double_of_bits(bits_f64(result) ^ (quarters << 62 & 0x8000000000000000u));
}

/// 0.80 ULP, of arguments up to the largest too.
INLINE double math_sin_f64(double x) {
  turn_f64_t turn = reduce_f64(__builtin_fabs(x));
  double result = sin_of_turn_f64(turn.quarters, turn.angle);
  result = double_of_bits(bits_f64(result) ^ (bits_f64(x) & 0x8000000000000000u));
  return __builtin_fabs(x) < INF_F64 ? result : x - x;
}

/// 0.80 ULP, of arguments up to the largest too.
INLINE double math_cos_f64(double x) {
  turn_f64_t turn = reduce_f64(__builtin_fabs(x));
  double result = sin_of_turn_f64(turn.quarters + 1, turn.angle);
  return __builtin_fabs(x) < INF_F64 ? result : x - x;
}

/// sin(x) / cos(x), or -cos(x) / sin(x) after a quarter turn: both as pairs, by the polynomials of sin_of_turn_f64.
INLINE double tan_of_turn_f64(uint64_t quarters, pair_t angle) {
#pragma clang fp contract(off)
  double x = angle.high;
  pair_t square = multiply_exactly(x, x);
  double z = square.high, half = 0.5 * z, lead = 1.0 - half;
  pair_t sin = {x, x * z * sin_tail_f64(z) + angle.low * lead};
  pair_t cos = {lead, ((1.0 - lead) - half) - 0.5 * square.low + (z * z * cos_tail_f64(z) - x * angle.low)};
  bool odd = quarters & 1;
  pair_t top = add_ordered(odd ? -cos.high : sin.high, odd ? -cos.low : sin.low);
  pair_t bottom = add_ordered(odd ? sin.high : cos.high, odd ? sin.low : cos.low);
  pair_t quotient = divide_pairs(top, bottom);
  return quotient.high + quotient.low;
}

/// 0.9 ULP, of arguments up to the largest too.
INLINE double math_tan_f64(double x) {
  turn_f64_t turn = reduce_f64(__builtin_fabs(x));
  double result = tan_of_turn_f64(turn.quarters, turn.angle);
  result = double_of_bits(bits_f64(result) ^ (bits_f64(x) & 0x8000000000000000u));
  return __builtin_fabs(x) < INF_F64 ? result : x - x;
}

/// What an arcsine is made of: the sine of the angle or, beyond 0.5, of half the rest of a right angle; and the angle less that.
typedef struct {
  double sine, rest;
} arc_f64_t;

INLINE arc_f64_t arc_of_f64(double size) {
#pragma clang fp contract(off)
  bool far = size > 0.5;
  double z = far ? (1.0 - size) * 0.5 : size * size;
  double sine = far ? math_sqrt_f64(z) : size;
  pair_t square = multiply_exactly(sine, sine);
  double lost = sine > 0 ? ((z - square.high) - square.low) / (sine + sine) : 0.0;
  double rest = sine * z * ((((((((((((0x1.0b49f53c6761p-5 * z - 0x1.58081e26a0e24p-6) * z + 0x1.63a443fbe8ba2p-6)
      * z + 0x1.e5da89ea956cp-9) * z + 0x1.613e71d5bc139p-7) * z + 0x1.75852c84ac661p-7) * z + 0x1.ca1f99e243ab3p-7)
      * z + 0x1.1c49efc89ba03p-6) * z + 0x1.6e8bdee9affbep-6) * z + 0x1.f1c71a948dd5cp-6) * z + 0x1.6db6db7213b2dp-5)
      * z + 0x1.333333332e10dp-4) * z + 0x1.5555555555577p-3);
  return (arc_f64_t){sine, rest + (far ? lost : 0.0)};
}

/// 0.65 ULP.
INLINE double math_asin_f64(double x) {
#pragma clang fp contract(off)
  double size = __builtin_fabs(x);
  arc_f64_t arc = arc_of_f64(size);
  double twice = arc.sine + arc.sine;
  double whole = 0x1.921fb54442d18p+0 - twice;
  double lost = (0x1.921fb54442d18p+0 - whole) - twice;
  double far = whole + (lost - (arc.rest + arc.rest - 0x1.1a62633145c07p-54));
  return __builtin_copysign(size > 0.5 ? far : arc.sine + arc.rest, x);
}

/// 0.65 ULP. What a right angle, a straight one or none has more than a part of one sign.
INLINE double math_acos_f64(double x) {
#pragma clang fp contract(off)
  double size = __builtin_fabs(x);
  arc_f64_t arc = arc_of_f64(size);
  bool far = size > 0.5;
  double high = !far ? 0x1.921fb54442d18p+0 : x < 0 ? 0x1.921fb54442d18p+1 : 0.0;
  double low = !far ? 0x1.1a62633145c07p-54 : x < 0 ? 0x1.1a62633145c07p-53 : 0.0;
  double factor = far ? (x < 0 ? 2.0 : -2.0) : x < 0 ? -1.0 : 1.0;
  double part = factor * arc.sine;
  double whole = high - part;
  double lost = (high - whole) - part;
  return whole + (lost - (factor * arc.rest - low));
}

/// 0.85 ULP. The nearest of five angles, and the arc tangent of the rest (fdlibm).
INLINE double math_atan_f64(double x) {
#pragma clang fp contract(off)
  double size = __builtin_fabs(x);
  bool first = size < 0.4375, second = size < 0.6875, third = size < 1.1875, fourth = size < 2.4375;
  double top = first ? size : second ? 2.0 * size - 1.0 : third ? size - 1.0 : fourth ? size - 1.5 : -1.0;
  double bottom = first ? 1.0 : second ? 2.0 + size : third ? 1.0 + size : fourth ? 1.0 + 1.5 * size : size;
  double high = first ? 0.0 : second ? 0x1.dac670561bb4fp-2 : third ? 0x1.921fb54442d18p-1
      : fourth ? 0x1.f730bd281f69bp-1 : 0x1.921fb54442d18p+0;
  double low = first ? 0.0 : second ? 0x1.a2b7f222f65e2p-56 : third ? 0x1.1a62633145c07p-55
      : fourth ? 0x1.007887af0cbbdp-56 : 0x1.1a62633145c07p-54;
  double t = top / bottom;
  double z = t * t;
  double rest = t * z * ((((((((((-0x1.0a7f544d4da25p-6 * z + 0x1.2b1801b05a03fp-5) * z - 0x1.97a0a8223c44ep-5)
      * z + 0x1.ddddb58061b68p-5) * z - 0x1.10d6020eabd82p-4) * z + 0x1.3b0f20649e027p-4) * z - 0x1.745cdba491742p-4)
      * z + 0x1.c71c6fdb14d3ep-4) * z - 0x1.2492491ff30bfp-3) * z + 0x1.999999998e7d2p-3) * z - 0x1.555555555550bp-2);
  double result = high + ((rest + low) + t);
  return __builtin_copysign(size == size ? result : size, x);
}

/// Half of exp(size) as a pair, for size in [0, 711].
INLINE pair_t half_power(double size) {
  double shifted;
  pair_t parts = exp_parts_f64(size > 711.0 ? 711.0 : size, 0.0, &shifted);
  pair_t power = add_ordered(parts.high, parts.low);
  int64_t twos = integer_of_shifted(shifted) - 1;
  return (pair_t){scale_f64(power.high, twos), scale_f64(power.low, twos)};
}

/// 0.9 ULP. An odd polynomial near zero.
INLINE double math_sinh_f64(double x) {
#pragma clang fp contract(off)
  double size = __builtin_fabs(x);
  double z = size * size;
  double small = size * z * ((((((0x1.b4c75de06de02p-41 * z + 0x1.611a56120bebcp-33) * z + 0x1.ae64671b391a8p-26)
      * z + 0x1.71de3a465af2dp-19) * z + 0x1.a01a01a0289a1p-13) * z + 0x1.11111111110a6p-7) * z + 0x1.5555555555556p-3) + size;
  pair_t power = half_power(size);
  double inverse = 0.25 / power.high;
  double large = power.high - inverse;
  large = large < INF_F64 ? large + (((power.high - large) - inverse) + power.low) : large;
  return __builtin_copysign(size < 1.0 ? small : large, x);
}

/// 0.9 ULP.
INLINE double math_cosh_f64(double x) {
#pragma clang fp contract(off)
  pair_t power = half_power(__builtin_fabs(x));
  double inverse = 0.25 / power.high;
  double result = power.high + inverse;
  return result < INF_F64 ? result + (((power.high - result) + inverse) + power.low) : result;
}

/// The square root of a pair; 0 of 0.
INLINE pair_t root_of_pair(pair_t x) {
#pragma clang fp contract(off)
  double root = math_sqrt_f64(x.high);
  pair_t square = multiply_exactly(root, root);
  double rest = (((x.high - square.high) - square.low) + x.low) / (root + root);
  return (pair_t){root, root == 0 ? 0.0 : rest};
}

/// log(1 + x), or log(2 size) of a large size.
INLINE double log1p_of_pair(pair_t x, bool far, double size) {
#pragma clang fp contract(off)
  pair_t sum = add_exactly(1.0, x.high);
  return log_of_sum_f64(far ? size : sum.high, far ? 0.0 : sum.low + x.low, far ? 1.0 : 0.0);
}

/// 1.1 ULP. log(1 + x + x^2 / (1 + sqrt(1 + x^2))).
INLINE double math_asinh_f64(double x) {
#pragma clang fp contract(off)
  double size = __builtin_fabs(x);
  bool far = size > 0x1p28;
  double near = far ? 1.0 : size;
  pair_t square = multiply_exactly(near, near);
  pair_t sum = add_exactly(1.0, square.high);
  pair_t root = root_of_pair((pair_t){sum.high, sum.low + square.low});
  pair_t divisor = add_ordered(root.high, 1.0);
  pair_t quotient = divide_pairs(square, (pair_t){divisor.high, divisor.low + root.low});
  pair_t more = add_ordered(near, quotient.high);
  double result = log1p_of_pair((pair_t){more.high, more.low + quotient.low}, far, size);
  return __builtin_copysign(size < INF_F64 ? result : size, x);
}

/// 0.85 ULP. log(1 + (x - 1) + sqrt(x^2 - 1)).
INLINE double math_acosh_f64(double x) {
#pragma clang fp contract(off)
  bool far = x > 0x1p28;
  double near = far ? 1.0 : x;
  pair_t square = multiply_exactly(near, near);
  pair_t less = add_exactly(square.high, -1.0);
  pair_t root = root_of_pair((pair_t){less.high, less.low + square.low});
  pair_t rest = add_exactly(near, -1.0);
  pair_t more = add_exactly(root.high, rest.high);
  double result = log1p_of_pair((pair_t){more.high, more.low + (root.low + rest.low)}, far, x);
  result = x < INF_F64 ? result : x;
  return x >= 1.0 ? result : NAN_F64;
}

/// 1.1 ULP. log(1 + 2 x / (1 - x)) / 2.
INLINE double math_atanh_f64(double x) {
#pragma clang fp contract(off)
  double size = __builtin_fabs(x);
  pair_t quotient = divide_pairs((pair_t){size + size, 0.0}, add_ordered(1.0, -size));
  double result = 0.5 * log1p_of_pair(quotient, false, 0.0);
  result = size < 1.0 ? result : INF_F64;
  return size <= 1.0 ? __builtin_copysign(result, x) : NAN_F64;
}

#endif
