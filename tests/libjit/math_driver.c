/// Loops over arrays around every function of math.h, for test_math.py to call.
#include "math.h"

#define UNARY(function, suffix, type)                                                                 \
  void function##_##suffix(type *restrict result, const type *restrict input, dim_t count) {         \
    for (dim_t i = 0; i < count; i++) result[i] = math_##function##_##suffix(input[i]);              \
  }

#define BINARY(function, suffix, type)                                                                \
  void function##_##suffix(type *restrict result, const type *restrict lhs, const type *restrict rhs, \
                           dim_t count) {                                                             \
    for (dim_t i = 0; i < count; i++) result[i] = math_##function##_##suffix(lhs[i], rhs[i]);        \
  }

#define BOTH(function)          \
  UNARY(function, f32, float)   \
  UNARY(function, f64, double)

BOTH(abs)
BOTH(floor)
BOTH(ceil)
BOTH(trunc)
BOTH(round)
BOTH(sqrt)
BOTH(exp)
BOTH(log)
BOTH(log1p)
BOTH(tanh)
BOTH(sigmoid)
BOTH(softplus)
BOTH(erf)
BOTH(sin)
BOTH(cos)
BOTH(tan)
BOTH(asin)
BOTH(acos)
BOTH(atan)
BOTH(sinh)
BOTH(cosh)
BOTH(asinh)
BOTH(acosh)
BOTH(atanh)
BINARY(pow, f32, float)
BINARY(pow, f64, double)
