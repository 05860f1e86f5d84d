/// Fourier transforms of floats and of doubles: this file reads itself once for each.
///
/// Stockham's algorithm (Cochran et al. 1967): every pass takes sums over one factor of the length from one half of the work
/// memory to the other, and leaves them in order. Real and imaginary parts lie apart, so that neighbours make vectors. Passes
/// of 4 come first, while neighbours are few; those of factors above 5 are sums of products. Products are rounded before
/// they are added: of numbers that are alike, differences are then as exact as in other implementations, and often 0.
#ifndef T
#include "kernels_gen.h"
#include "libjit.h"

#pragma clang fp contract(off)

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

/// `to` becomes a product with a root.
INLINE void OF(store_product)(T *re, T *im, T a, T b, const T *root) {
  *re = a * root[0] - b * root[1];
  *im = a * root[1] + b * root[0];
}

/// Four numbers, `apart` from each other, become their sums times roots, `step` from each other.
INLINE void OF(turn4)(T *restrict tr, T *restrict ti, const T *restrict fr, const T *restrict fi, dim_t apart, dim_t step,
                      const T *root1, const T *root2, const T *root3) {
  T ar = fr[0] + fr[2 * apart], ai = fi[0] + fi[2 * apart], br = fr[0] - fr[2 * apart], bi = fi[0] - fi[2 * apart];
  T cr = fr[apart] + fr[3 * apart], ci = fi[apart] + fi[3 * apart], dr = fr[apart] - fr[3 * apart], di = fi[apart] - fi[3 * apart];
  tr[0] = ar + cr;
  ti[0] = ai + ci;
  OF(store_product)(tr + step, ti + step, br + di, bi - dr, root1);
  OF(store_product)(tr + 2 * step, ti + 2 * step, ar - cr, ai - ci, root2);
  OF(store_product)(tr + 3 * step, ti + 3 * step, br - di, bi + dr, root3);
}

/// A pass of a factor of 4: `step` transforms lie side by side.
INLINE void OF(pass4)(T *restrict tr, T *restrict ti, const T *restrict fr, const T *restrict fi, const T *restrict roots,
                      dim_t rest, dim_t step) {
  dim_t apart = rest * step;
  if (step == 1) {
    for (dim_t p = 0; p < rest; p++)
      OF(turn4)(tr + 4 * p, ti + 4 * p, fr + p, fi + p, apart, 1, roots + 2 * p, roots + 4 * p, roots + 6 * p);
    return;
  }
  for (dim_t p = 0; p < rest; p++) {
    const T *root = roots + 2 * p * step, *root2 = roots + 4 * p * step, *root3 = roots + 6 * p * step;
    dim_t to = 4 * p * step, from = p * step;
    for (dim_t q = 0; q < step; q++)
      OF(turn4)(tr + to + q, ti + to + q, fr + from + q, fi + from + q, apart, step, root, root2, root3);
  }
}

INLINE void OF(pass2)(T *restrict tr, T *restrict ti, const T *restrict fr, const T *restrict fi, const T *restrict roots,
                      dim_t rest, dim_t step) {
  dim_t apart = rest * step;
  for (dim_t p = 0; p < rest; p++) {
    const T *root = roots + 2 * p * step;
    dim_t to = 2 * p * step, from = p * step;
    for (dim_t q = 0; q < step; q++) {
      T ar = fr[from + q], ai = fi[from + q], br = fr[from + q + apart], bi = fi[from + q + apart];
      tr[to + q] = ar + br;
      ti[to + q] = ai + bi;
      OF(store_product)(tr + to + step + q, ti + to + step + q, ar - br, ai - bi, root);
    }
  }
}

/// A pass of a factor of 3: the other two numbers by their sum and their difference.
INLINE void OF(pass3)(T *restrict tr, T *restrict ti, const T *restrict fr, const T *restrict fi, const T *restrict roots,
                      dim_t length, dim_t rest, dim_t step) {
  const T c = (T)-0.5, s = roots[2 * (length / 3) + 1];
  dim_t apart = rest * step;
  for (dim_t p = 0; p < rest; p++) {
    const T *root1 = roots + 2 * p * step, *root2 = roots + 4 * p * step;
    T *re = tr + 3 * p * step, *im = ti + 3 * p * step;
    const T *xr = fr + p * step, *xi = fi + p * step;
    for (dim_t q = 0; q < step; q++) {
      T ar = xr[q + apart] + xr[q + 2 * apart], ai = xi[q + apart] + xi[q + 2 * apart];
      T br = s * (xr[q + apart] - xr[q + 2 * apart]), bi = s * (xi[q + apart] - xi[q + 2 * apart]);
      T mr = xr[q] + c * ar, mi = xi[q] + c * ai;
      re[q] = xr[q] + ar;
      im[q] = xi[q] + ai;
      OF(store_product)(re + step + q, im + step + q, mr - bi, mi + br, root1);
      OF(store_product)(re + 2 * step + q, im + 2 * step + q, mr + bi, mi - br, root2);
    }
  }
}

/// A pass of a factor of 5, likewise by two sums and two differences.
INLINE void OF(pass5)(T *restrict tr, T *restrict ti, const T *restrict fr, const T *restrict fi, const T *restrict roots,
                      dim_t length, dim_t rest, dim_t step) {
  const T *once = roots + 2 * (length / 5), *twice = once + 2 * (length / 5);
  const T c1 = once[0], s1 = once[1], c2 = twice[0], s2 = twice[1];
  dim_t apart = rest * step;
  for (dim_t p = 0; p < rest; p++) {
    const T *root1 = roots + 2 * p * step, *root2 = roots + 4 * p * step, *root3 = roots + 6 * p * step;
    const T *root4 = roots + 8 * p * step;
    T *re = tr + 5 * p * step, *im = ti + 5 * p * step;
    const T *xr = fr + p * step, *xi = fi + p * step;
    for (dim_t q = 0; q < step; q++) {
      T ar = xr[q + apart] + xr[q + 4 * apart], ai = xi[q + apart] + xi[q + 4 * apart];
      T br = xr[q + apart] - xr[q + 4 * apart], bi = xi[q + apart] - xi[q + 4 * apart];
      T cr = xr[q + 2 * apart] + xr[q + 3 * apart], ci = xi[q + 2 * apart] + xi[q + 3 * apart];
      T dr = xr[q + 2 * apart] - xr[q + 3 * apart], di = xi[q + 2 * apart] - xi[q + 3 * apart];
      T er = xr[q] + c1 * ar + c2 * cr, ei = xi[q] + c1 * ai + c2 * ci, gr = s1 * br + s2 * dr, gi = s1 * bi + s2 * di;
      T hr = xr[q] + c2 * ar + c1 * cr, hi = xi[q] + c2 * ai + c1 * ci, kr = s2 * br - s1 * dr, ki = s2 * bi - s1 * di;
      re[q] = xr[q] + ar + cr;
      im[q] = xi[q] + ai + ci;
      OF(store_product)(re + step + q, im + step + q, er - gi, ei + gr, root1);
      OF(store_product)(re + 2 * step + q, im + 2 * step + q, hr - ki, hi + kr, root2);
      OF(store_product)(re + 3 * step + q, im + 3 * step + q, hr + ki, hi - kr, root3);
      OF(store_product)(re + 4 * step + q, im + 4 * step + q, er + gi, ei - gr, root4);
    }
  }
}

/// A pass of any factor: sums of products with roots, each of which is looked up.
INLINE void OF(pass_any)(T *restrict tr, T *restrict ti, const T *restrict fr, const T *restrict fi, const T *restrict roots,
                         dim_t length, dim_t factor, dim_t rest, dim_t step) {
  dim_t apart = rest * step, turn = length / factor;
  for (dim_t p = 0; p < rest; p++) {
    for (dim_t j = 0; j < factor; j++) {
      T *re = tr + (factor * p + j) * step, *im = ti + (factor * p + j) * step;
      // Root j * (k * turn + p * step) of factor k, one after the other.
      dim_t at = j * p * step % length, by = j * turn % length;
      for (dim_t q = 0; q < step; q++) re[q] = im[q] = 0;
      for (dim_t k = 0; k < factor; k++) {
        const T *a = fr + p * step + k * apart, *b = fi + p * step + k * apart;
        T c = roots[2 * at], s = roots[2 * at + 1];
        for (dim_t q = 0; q < step; q++) {
          re[q] += a[q] * c - b[q] * s;
          im[q] += a[q] * s + b[q] * c;
        }
        at = at + by < length ? at + by : at + by - length;
      }
    }
  }
}

/// The transform of one row; which part of the work memory it is in.
INLINE OF(parts_t) OF(transform)(T *work, const T *roots, dim_t length) {
  OF(parts_t) from = {work, work + length}, to = {work + 2 * length, work + 3 * length};
  ROLLED for (dim_t left = length, step = 1; left > 1;) {
    dim_t factor = factor_of(left), rest = left / factor;
    if (factor == 4)
      OF(pass4)(to.re, to.im, from.re, from.im, roots, rest, step);
    else if (factor == 2)
      OF(pass2)(to.re, to.im, from.re, from.im, roots, rest, step);
    else if (factor == 3)
      OF(pass3)(to.re, to.im, from.re, from.im, roots, length, rest, step);
    else if (factor == 5)
      OF(pass5)(to.re, to.im, from.re, from.im, roots, length, rest, step);
    else
      OF(pass_any)(to.re, to.im, from.re, from.im, roots, length, factor, rest, step);
    OF(parts_t) other = from;
    from = to;
    to = other;
    left = rest;
    step *= factor;
  }
  return from;
}

/// A row of input, and zeros after it.
INLINE void OF(load_row)(OF(parts_t) to, const T *restrict input, dim_t rows, dim_t parts, dim_t length) {
  for (dim_t i = 0; i < rows; i++) to.re[i] = input[i * parts];
  for (dim_t i = 0; i < rows; i++) to.im[i] = parts == 2 ? input[i * parts + 1] : 0;
  for (dim_t i = rows; i < length; i++) to.re[i] = to.im[i] = 0;
}

/// The conjugates that the second half of the spectrum of real numbers consists of. What has none is real as well.
INLINE void OF(add_conjugates)(OF(parts_t) to, dim_t length) {
  to.im[0] = 0;
  if (length % 2 == 0) to.im[length / 2] = 0;
  for (dim_t i = 1; 2 * i < length; i++) {
    to.re[length - i] = to.re[i];
    to.im[length - i] = -to.im[i];
  }
}

/// The inverse is the transform of what has both parts exchanged, exchanged as well.
KERNEL void OF(libjit_fourier_transform)(T *restrict result, const T *restrict input, const T *restrict roots,
                                         T *restrict work, const ints_t *result_shape, const ints_t *input_shape,
                                         const ints_t *roots_shape, const ints_t *work_shape, bool inverse, bool half) {
  dim_t rank = input_shape->size, length = roots_shape->at[0], bins = half ? length / 2 + 1 : length;
  dim_t given = input_shape->at[rank - 2], parts = input_shape->at[rank - 1], number = count_between(input_shape, 0, rank - 2);
  dim_t kept = result_shape->at[rank - 2], wide = result_shape->at[rank - 1];
  T scale = inverse ? 1 / (T)length : 1;
  for (dim_t row = 0; row < number; row++) {
    OF(parts_t) to = {inverse ? work + length : work, inverse ? work : work + length};
    OF(load_row)(to, input + row * given * parts, min_dim(given, inverse ? bins : length), parts, length);
    if (inverse && half) OF(add_conjugates)(to, length);
    OF(parts_t) from = OF(transform)(work, roots, length);
    from = inverse ? (OF(parts_t)){from.im, from.re} : from;
    if (parts == 1 && !(inverse && half)) OF(add_conjugates)(from, length);
    const T *restrict re = from.re, *restrict im = from.im;
    T *out = result + row * kept * wide;
    for (dim_t i = 0; i < kept; i++) {
      out[i * wide] = re[i] * scale;
      if (wide == 2) out[i * wide + 1] = im[i] * scale;
    }
  }
}
#endif
