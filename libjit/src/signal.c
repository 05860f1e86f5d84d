/// Fourier transforms of floats and of doubles: this file reads itself once for each.
///
/// Stockham's algorithm (Cochran et al. 1967): every pass takes sums over one factor of the length from one half of the work
/// memory to the other, and leaves them in order. Real and imaginary parts lie apart, so that neighbours make vectors; where there
/// are many rows, the same elements of several lie side by side, so that there are neighbours from the first pass. Passes
/// of 4 come first, while neighbours are few; those of factors above 5 are sums of products. Products are rounded before
/// they are added: of numbers that are alike, differences are then as exact as in other implementations, and often 0.
#ifndef T
#include "kernels_gen.h"
#include "libjit.h"

#pragma clang fp contract(off)

/// Numbers of a row that are loaded or stored together.
enum { AT_ONCE = 16 };

/// The factor of the next pass.
INLINE dim_t factor_of(dim_t length) {
  if (length % 4 == 0) return 4;
  if (length % 2 == 0) return 2;
  for (dim_t factor = 3; factor * factor <= length; factor += 2)
    if (length % factor == 0) return factor;
  return length;
}

#include "as_f32.h"
#include "signal.c"
#include "as_f64.h"
#include "signal.c"
#else
/// Numbers with real and imaginary parts.
typedef struct {
  T *re, *im;
} OF(parts_t);

/// A root of unity, which no store changes.
typedef struct {
  T re, im;
} OF(root_t);

INLINE OF(root_t) OF(root_at)(const T *roots, dim_t i) { return (OF(root_t)){roots[2 * i], roots[2 * i + 1]}; }

/// What a pass does with a few numbers, `apart` from each other, that become as many, `side` from each other: sums times roots.
/// E is an element, or a vector of neighbours.
#define TURNS(NAME, E)                                                                                                         \
  INLINE E OF(load_##NAME)(const T *from) { return *(const E *)from; }                                                         \
                                                                                                                               \
  INLINE void OF(store_##NAME)(T *re, T *im, E a, E b) {                                                                       \
    *(E *)re = a;                                                                                                              \
    *(E *)im = b;                                                                                                              \
  }                                                                                                                            \
                                                                                                                               \
  INLINE void OF(product_##NAME)(T *re, T *im, E a, E b, OF(root_t) root) {                                                    \
    OF(store_##NAME)(re, im, a * root.re - b * root.im, a * root.im + b * root.re);                                            \
  }                                                                                                                            \
                                                                                                                               \
  INLINE void OF(turn2_##NAME)(T *re, T *im, const T *xr, const T *xi, dim_t apart, dim_t side, OF(root_t) root) {             \
    E ar = OF(load_##NAME)(xr), ai = OF(load_##NAME)(xi), br = OF(load_##NAME)(xr + apart), bi = OF(load_##NAME)(xi + apart);  \
    OF(store_##NAME)(re, im, ar + br, ai + bi);                                                                                \
    OF(product_##NAME)(re + side, im + side, ar - br, ai - bi, root);                                                          \
  }                                                                                                                            \
                                                                                                                               \
  INLINE void OF(turn3_##NAME)(T *re, T *im, const T *xr, const T *xi, dim_t apart, dim_t side, OF(root_t) unit,               \
                               OF(root_t) root1, OF(root_t) root2) {                                                           \
    E x = OF(load_##NAME)(xr), y = OF(load_##NAME)(xi);                                                                        \
    E r1 = OF(load_##NAME)(xr + apart), i1 = OF(load_##NAME)(xi + apart);                                                      \
    E r2 = OF(load_##NAME)(xr + 2 * apart), i2 = OF(load_##NAME)(xi + 2 * apart);                                              \
    E ar = r1 + r2, ai = i1 + i2, br = unit.im * (r1 - r2), bi = unit.im * (i1 - i2);                                          \
    E mr = x + (T)-0.5 * ar, mi = y + (T)-0.5 * ai;                                                                            \
    OF(store_##NAME)(re, im, x + ar, y + ai);                                                                                  \
    OF(product_##NAME)(re + side, im + side, mr - bi, mi + br, root1);                                                         \
    OF(product_##NAME)(re + 2 * side, im + 2 * side, mr + bi, mi - br, root2);                                                 \
  }                                                                                                                            \
                                                                                                                               \
  INLINE void OF(turn4_##NAME)(T *re, T *im, const T *xr, const T *xi, dim_t apart, dim_t side, OF(root_t) root1,              \
                               OF(root_t) root2, OF(root_t) root3) {                                                           \
    E r0 = OF(load_##NAME)(xr), r1 = OF(load_##NAME)(xr + apart), r2 = OF(load_##NAME)(xr + 2 * apart);                        \
    E i0 = OF(load_##NAME)(xi), i1 = OF(load_##NAME)(xi + apart), i2 = OF(load_##NAME)(xi + 2 * apart);                        \
    E r3 = OF(load_##NAME)(xr + 3 * apart), i3 = OF(load_##NAME)(xi + 3 * apart);                                              \
    E ar = r0 + r2, ai = i0 + i2, br = r0 - r2, bi = i0 - i2, cr = r1 + r3, ci = i1 + i3, dr = r1 - r3, di = i1 - i3;          \
    OF(store_##NAME)(re, im, ar + cr, ai + ci);                                                                                \
    OF(product_##NAME)(re + side, im + side, br + di, bi - dr, root1);                                                         \
    OF(product_##NAME)(re + 2 * side, im + 2 * side, ar - cr, ai - ci, root2);                                                 \
    OF(product_##NAME)(re + 3 * side, im + 3 * side, br - di, bi + dr, root3);                                                 \
  }                                                                                                                            \
                                                                                                                               \
  INLINE void OF(turn5_##NAME)(T *re, T *im, const T *xr, const T *xi, dim_t apart, dim_t side, OF(root_t) once,               \
                               OF(root_t) twice, const OF(root_t) *roots) {                                                    \
    E x = OF(load_##NAME)(xr), r1 = OF(load_##NAME)(xr + apart), r2 = OF(load_##NAME)(xr + 2 * apart);                         \
    E y = OF(load_##NAME)(xi), i1 = OF(load_##NAME)(xi + apart), i2 = OF(load_##NAME)(xi + 2 * apart);                         \
    E r3 = OF(load_##NAME)(xr + 3 * apart), r4 = OF(load_##NAME)(xr + 4 * apart);                                              \
    E i3 = OF(load_##NAME)(xi + 3 * apart), i4 = OF(load_##NAME)(xi + 4 * apart);                                              \
    E ar = r1 + r4, ai = i1 + i4, br = r1 - r4, bi = i1 - i4, cr = r2 + r3, ci = i2 + i3, dr = r2 - r3, di = i2 - i3;          \
    E er = x + once.re * ar + twice.re * cr, ei = y + once.re * ai + twice.re * ci;                                            \
    E hr = x + twice.re * ar + once.re * cr, hi = y + twice.re * ai + once.re * ci;                                            \
    E gr = once.im * br + twice.im * dr, gi = once.im * bi + twice.im * di;                                                    \
    E kr = twice.im * br - once.im * dr, ki = twice.im * bi - once.im * di;                                                    \
    OF(store_##NAME)(re, im, x + ar + cr, y + ai + ci);                                                                        \
    OF(product_##NAME)(re + side, im + side, er - gi, ei + gr, roots[0]);                                                      \
    OF(product_##NAME)(re + 2 * side, im + 2 * side, hr - ki, hi + kr, roots[1]);                                              \
    OF(product_##NAME)(re + 3 * side, im + 3 * side, hr + ki, hi - kr, roots[2]);                                              \
    OF(product_##NAME)(re + 4 * side, im + 4 * side, er + gi, ei - gr, roots[3]);                                              \
  }                                                                                                                            \
                                                                                                                               \
  INLINE void OF(add_##NAME)(T *re, T *im, const T *xr, const T *xi, OF(root_t) root) {                                        \
    E a = OF(load_##NAME)(xr), b = OF(load_##NAME)(xi);                                                                        \
    OF(store_##NAME)(re, im, OF(load_##NAME)(re) + (a * root.re - b * root.im), OF(load_##NAME)(im) + (a * root.im + b * root.re)); \
  }

TURNS(vector, V)
TURNS(element, T)
#undef TURNS

/// What lies side by side: vectors, and the elements that are left.
#define SIDE_BY_SIDE(TURN, RE, IM, XR, XI, ...)                                                             \
  do {                                                                                                      \
    dim_t q = 0;                                                                                            \
    ROLLED for (; q + W <= side; q += W) OF(TURN##_vector)((RE) + q, (IM) + q, (XR) + q, (XI) + q, __VA_ARGS__);   \
    for (; q < side; q++) OF(TURN##_element)((RE) + q, (IM) + q, (XR) + q, (XI) + q, __VA_ARGS__);          \
  } while (0)

/// A pass of a factor up to 5: `side` numbers lie side by side, those of `rows` rows and `step` transforms.
INLINE void OF(pass)(T *restrict tr, T *restrict ti, const T *restrict fr, const T *restrict fi, const T *restrict roots,
                     dim_t length, dim_t factor, dim_t rest, dim_t step, dim_t rows) {
  dim_t side = step * rows, apart = rest * side, turn = length / factor;
  OF(root_t) once = OF(root_at)(roots, turn), twice = OF(root_at)(roots, factor == 5 ? 2 * turn : 0);
  ROLLED for (dim_t p = 0; p < rest; p++) {
    OF(root_t) root[4];
    UNROLL for (dim_t i = 0; i < 4; i++) root[i] = OF(root_at)(roots, i + 1 < factor ? (i + 1) * p * step : 0);
    T *re = tr + factor * p * side, *im = ti + factor * p * side;
    const T *xr = fr + p * side, *xi = fi + p * side;
    if (factor == 4)
      SIDE_BY_SIDE(turn4, re, im, xr, xi, apart, side, root[0], root[1], root[2]);
    else if (factor == 2)
      SIDE_BY_SIDE(turn2, re, im, xr, xi, apart, side, root[0]);
    else if (factor == 3)
      SIDE_BY_SIDE(turn3, re, im, xr, xi, apart, side, once, root[0], root[1]);
    else
      SIDE_BY_SIDE(turn5, re, im, xr, xi, apart, side, once, twice, root);
  }
}

/// A pass of any factor: sums of products with roots, each of which is looked up.
INLINE void OF(pass_any)(T *restrict tr, T *restrict ti, const T *restrict fr, const T *restrict fi, const T *restrict roots,
                         dim_t length, dim_t factor, dim_t rest, dim_t step, dim_t rows) {
  dim_t side = step * rows, apart = rest * side, turn = length / factor;
  for (dim_t p = 0; p < rest; p++) {
    for (dim_t j = 0; j < factor; j++) {
      T *re = tr + (factor * p + j) * side, *im = ti + (factor * p + j) * side;
      // Root j * (k * turn + p * step) of factor k, one after the other.
      dim_t at = j * p * step % length, by = j * turn % length;
      for (dim_t q = 0; q < side; q++) re[q] = im[q] = 0;
      for (dim_t k = 0; k < factor; k++) {
        SIDE_BY_SIDE(add, re, im, fr + p * side + k * apart, fi + p * side + k * apart, OF(root_at)(roots, at));
        at = at + by < length ? at + by : at + by - length;
      }
    }
  }
}

/// The transform of some rows, whose elements lie side by side; which part of the work memory it is in.
INLINE OF(parts_t) OF(transform)(T *work, const T *roots, dim_t length, dim_t rows) {
  dim_t size = length * rows;
  OF(parts_t) from = {work, work + size}, to = {work + 2 * size, work + 3 * size};
  ROLLED for (dim_t left = length, step = 1; left > 1;) {
    dim_t factor = factor_of(left), rest = left / factor;
    if (factor == 4)
      OF(pass)(to.re, to.im, from.re, from.im, roots, length, 4, rest, step, rows);
    else if (factor == 2)
      OF(pass)(to.re, to.im, from.re, from.im, roots, length, 2, rest, step, rows);
    else if (factor == 3)
      OF(pass)(to.re, to.im, from.re, from.im, roots, length, 3, rest, step, rows);
    else if (factor == 5)
      OF(pass)(to.re, to.im, from.re, from.im, roots, length, 5, rest, step, rows);
    else
      OF(pass_any)(to.re, to.im, from.re, from.im, roots, length, factor, rest, step, rows);
    OF(parts_t) other = from;
    from = to;
    to = other;
    left = rest;
    step *= factor;
  }
  return from;
}

/// Where a number of a row is, of `parts` numbers for each element, when the elements of rows lie side by side.
INLINE T *OF(place)(OF(parts_t) of, dim_t number, dim_t parts, dim_t rows) {
  return (parts == 2 && number % 2 ? of.im : of.re) + number / parts * rows;
}

typedef T OF(four_t) __attribute__((vector_size(4 * sizeof(T)), aligned(sizeof(T)), may_alias));

/// Four numbers of four places, times `scale`, become the first, second, third and fourth one of four others.
INLINE void OF(transpose4)(T *const *to, const T *const *from, T scale) {
  OF(four_t) a = *(const OF(four_t) *)from[0] * scale, b = *(const OF(four_t) *)from[1] * scale;
  OF(four_t) c = *(const OF(four_t) *)from[2] * scale, d = *(const OF(four_t) *)from[3] * scale;
  OF(four_t) ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  OF(four_t) cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  *(OF(four_t) *)to[0] = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
  *(OF(four_t) *)to[1] = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
  *(OF(four_t) *)to[2] = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
  *(OF(four_t) *)to[3] = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

/// So many numbers of each of some rows, `apart` from each other, times `scale`: from where they lie side by side, or to there
/// if `loads`. A few of all rows at a time lie near each other.
INLINE void OF(move_rows)(OF(parts_t) side, T *outside, dim_t numbers, dim_t apart, dim_t parts, dim_t rows, T scale, bool loads) {
  ROLLED for (dim_t first = 0; first < numbers; first += AT_ONCE) {
    dim_t last = min_dim(first + AT_ONCE, numbers), whole = rows % 4 == 0 ? first + (last - first) / 4 * 4 : first;
    ROLLED for (dim_t row = 0; row < rows; row += 4) {
      ROLLED for (dim_t i = first; i < whole; i += 4) {
        T *here[4], *there[4];
        UNROLL for (dim_t k = 0; k < 4; k++) {
          here[k] = OF(place)(side, i + k, parts, rows) + row;
          there[k] = outside + (row + k) * apart + i;
        }
        OF(transpose4)(loads ? here : there, (const T *const *)(loads ? there : here), scale);
      }
    }
    for (dim_t row = 0; row < rows; row++) {
      for (dim_t i = whole; i < last; i++) {
        T *here = OF(place)(side, i, parts, rows) + row, *there = outside + row * apart + i;
        *(loads ? here : there) = *(loads ? there : here) * scale;
      }
    }
  }
}

/// The conjugates that the second half of the spectrum of real numbers consists of. What has none is real as well.
INLINE void OF(add_conjugates)(OF(parts_t) to, dim_t length, dim_t rows) {
  for (dim_t row = 0; row < rows; row++) {
    to.im[row] = 0;
    if (length % 2 == 0) to.im[length / 2 * rows + row] = 0;
  }
  for (dim_t i = 1; 2 * i < length; i++) {
    for (dim_t row = 0; row < rows; row++) {
      to.re[(length - i) * rows + row] = to.re[i * rows + row];
      to.im[(length - i) * rows + row] = -to.im[i * rows + row];
    }
  }
}

/// The inverse is the transform of what has both parts exchanged, exchanged as well. As many rows as there is work memory for are
/// transformed side by side, and each of the rest by itself, with the same bits.
KERNEL void OF(libjit_fourier_transform)(T *restrict result, const T *restrict input, const T *restrict roots,
                                         T *restrict work, const ints_t *result_shape, const ints_t *input_shape,
                                         const ints_t *roots_shape, const ints_t *work_shape, bool inverse, bool half) {
  dim_t rank = input_shape->size, length = roots_shape->at[0], bins = half ? length / 2 + 1 : length;
  dim_t given = input_shape->at[rank - 2], parts = input_shape->at[rank - 1], number = count_between(input_shape, 0, rank - 2);
  dim_t kept = result_shape->at[rank - 2], wide = result_shape->at[rank - 1], most = work_shape->at[2];
  T scale = inverse ? 1 / (T)length : 1;
  ROLLED for (dim_t row = 0, rows; row < number; row += rows) {
    rows = number - row < most ? 1 : most;
    T *other = work + length * rows;
    OF(parts_t) to = {inverse ? other : work, inverse ? work : other};
    dim_t read = min_dim(given, inverse ? bins : length);
    OF(move_rows)(to, (T *)input + row * given * parts, read * parts, given * parts, parts, rows, 1, true);
    if (parts == 1)
      for (dim_t i = 0; i < length * rows; i++) to.im[i] = 0;
    for (dim_t i = read * rows; i < length * rows; i++) to.re[i] = to.im[i] = 0;
    if (inverse && half) OF(add_conjugates)(to, length, rows);
    OF(parts_t) from = OF(transform)(work, roots, length, rows);
    from = inverse ? (OF(parts_t)){from.im, from.re} : from;
    if (parts == 1 && !(inverse && half)) OF(add_conjugates)(from, length, rows);
    OF(move_rows)(from, result + row * kept * wide, kept * wide, kept * wide, wide, rows, scale, false);
  }
}
#endif
