/// What models of scikit-learn are made of, once for each kind of floats: this file reads itself.
#ifndef T
#include "kernels_gen.h"
#include "libjit.h"

/// So many walks go on together, because each waits for memory all the time.
enum { WALKS = 8 };

/// Bytes of the rows that one tree is walked with before the next: they stay in the first-level cache, and so does the tree.
enum { BLOCK_BYTES = 16384 };

/// The first key that does not come before an element, if it is the same; else the number of keys.
#define FIND(suffix, type)                                                                                                    \
  KERNEL void libjit_find_##suffix(int64_t *restrict result, const type *restrict input, const type *restrict keys,           \
                                   const ints_t *result_shape, const ints_t *input_shape, const ints_t *keys_shape) {         \
    dim_t n = count(input_shape), number = keys_shape->at[0];                                                                 \
    for (dim_t i = 0; i < n; i++) {                                                                                           \
      type value = input[i];                                                                                                  \
      dim_t first = 0;                                                                                                        \
      for (dim_t rest = number; rest > 0;) {                                                                                  \
        dim_t half = rest / 2;                                                                                                \
        type key = keys[first + half];                                                                                        \
        bool before = key < value || (key == key && value != value);                                                          \
        first = before ? first + half + 1 : first;                                                                            \
        rest = before ? rest - half - 1 : half;                                                                               \
      }                                                                                                                       \
      bool same = first < number && (keys[first] == value || (keys[first] != keys[first] && value != value));                 \
      result[i] = same ? first : number;                                                                                      \
    }                                                                                                                         \
  }

FIND(f32, float)
FIND(f64, double)
FIND(i64, int64_t)

/// Pairwise coupling (Wu, Lin and Weng 2004, the second algorithm). The matrix is that of the quadratic form to be minimised, and
/// a row for its product with the probabilities. Each step chooses one probability so that its own condition holds, and scales
/// all of them to a sum of 1; the products follow.
KERNEL void libjit_couple_pairs_f64(double *restrict result, const double *restrict input, double *restrict matrix,
                                    const ints_t *result_shape, const ints_t *input_shape, const ints_t *matrix_shape) {
  dim_t rows = result_shape->at[0], n = result_shape->at[1], pairs = input_shape->at[1];
  double *product = matrix + n * n;
  for (dim_t row = 0; row < rows; row++) {
    const double *first = input + row * pairs;
    double *p = result + row * n;
    for (dim_t i = 0; i < n; i++) {
      p[i] = 1 / (double)n;
      matrix[i * n + i] = 0;
    }
    for (dim_t i = 0; i < n; i++) {
      for (dim_t j = i + 1; j < n; j++) {
        double up = *first++, down = 1 - up;
        matrix[i * n + i] += down * down;
        matrix[j * n + j] += up * up;
        matrix[i * n + j] = matrix[j * n + i] = -up * down;
      }
    }
    for (dim_t step = 0; step < max_dim(100, n); step++) {
      double form = 0, error = 0;
      for (dim_t i = 0; i < n; i++) {
        product[i] = 0;
        for (dim_t j = 0; j < n; j++) product[i] += matrix[i * n + j] * p[j];
        form += p[i] * product[i];
      }
      for (dim_t i = 0; i < n; i++) {
        double distance = product[i] < form ? form - product[i] : product[i] - form;
        error = distance > error ? distance : error;
      }
      if (error < 0.005 / (double)n) break;
      for (dim_t i = 0; i < n; i++) {
        double own = matrix[i * n + i], change = (form - product[i]) / own, sum = 1 + change;
        form = (form + change * (change * own + 2 * product[i])) / (sum * sum);
        p[i] += change;
        for (dim_t j = 0; j < n; j++) {
          product[j] = (product[j] + change * matrix[i * n + j]) / sum;
          p[j] /= sum;
        }
      }
    }
  }
}

#include "as_f32.h"
#include "ml.c"

#include "as_f64.h"
#include "ml.c"

#else

/// The child of a branch that a row of features goes on to.
INLINE int32_t OF(child)(const int32_t *branches, const T *thresholds, bool missing, dim_t place, const T *row) {
  const int32_t *branch = branches + 3 * place;
  int32_t feature = branch[0], to_first = feature >> 31;
  T value = row[missing ? feature ^ to_first : feature];
  int32_t second = !(value <= thresholds[place]);
  if (missing) second &= ~(to_first & -(value != value));
  return branch[1 + second];
}

/// Takes walks from branch to branch until all are at leaves, which are below zero. Each has its own row of features. Nothing
/// is decided by jumps but whether to go on, because nobody could foretell them.
INLINE void OF(walk)(const int32_t *branches, const T *thresholds, bool missing, int32_t *at, const T *const *rows) {
  for (;;) {
    int32_t all = -1;
    UNROLL for (dim_t i = 0; i < WALKS; i++) all &= at[i];
    if (all < 0) return;
    UNROLL for (dim_t i = 0; i < WALKS; i++) {
      int32_t there = at[i] >> 31;
      at[i] = (OF(child)(branches, thresholds, missing, at[i] & ~there, rows[i]) & ~there) | (at[i] & there);
    }
  }
}

/// Adds the weights of a leaf to their targets, or keeps the greater.
INLINE void OF(count_leaf)(T *restrict totals, const T *restrict weights, dim_t width, bool greatest) {
  for (dim_t k = 0; k < width; k++) {
    if (greatest)
      totals[k] = weights[k] > totals[k] || totals[k] != totals[k] ? weights[k] : totals[k];
    else
      totals[k] += weights[k];
  }
}

/// Every row in every tree, some rows at a time, and some trees where there are not as many rows left.
INLINE void OF(walk_rows)(T *restrict result, const T *restrict input, const int32_t *restrict branches,
                          const T *restrict thresholds, const int32_t *restrict trees, const T *restrict weights, dim_t number,
                          dim_t features, dim_t count, dim_t width, dim_t targets, bool greatest, bool missing) {
  dim_t whole = number - number % WALKS;
  dim_t block = max_dim(BLOCK_BYTES / (dim_t)sizeof(T) / max_dim(features, 1) / WALKS, 1) * WALKS;
  for (dim_t start = 0; start < whole; start += block) {
    for (dim_t t = 0; t < count; t++) {
      for (dim_t row = start; row < min_dim(start + block, whole); row += WALKS) {
        int32_t at[WALKS];
        const T *rows[WALKS];
        UNROLL for (dim_t i = 0; i < WALKS; i++) {
          at[i] = trees[2 * t];
          rows[i] = input + (row + i) * features;
        }
        OF(walk)(branches, thresholds, missing, at, rows);
        T *totals = result + row * targets + trees[2 * t + 1];
        UNROLL for (dim_t i = 0; i < WALKS; i++)
          OF(count_leaf)(totals + i * targets, weights + ~at[i] * width, width, greatest);
      }
    }
  }
  for (dim_t row = whole; row < number; row++) {
    for (dim_t t = 0; t < count; t += WALKS) {
      int32_t at[WALKS];
      const T *rows[WALKS];
      UNROLL for (dim_t i = 0; i < WALKS; i++) {
        at[i] = t + i < count ? trees[2 * (t + i)] : -1;
        rows[i] = input + row * features;
      }
      OF(walk)(branches, thresholds, missing, at, rows);
      for (dim_t i = 0; i < min_dim(WALKS, count - t); i++)
        OF(count_leaf)(result + row * targets + trees[2 * (t + i) + 1], weights + ~at[i] * width, width, greatest);
    }
  }
}

KERNEL void OF(libjit_tree_ensemble)(T *restrict result, const T *restrict input, const int32_t *restrict branches,
                                     const T *restrict thresholds, const int32_t *restrict trees, const T *restrict weights,
                                     const ints_t *result_shape, const ints_t *input_shape, const ints_t *branches_shape,
                                     const ints_t *thresholds_shape, const ints_t *trees_shape, const ints_t *weights_shape,
                                     dim_t targets, bool greatest, bool missing) {
  dim_t number = input_shape->at[0], features = input_shape->at[1], count = trees_shape->at[0], width = weights_shape->at[1];
  const T none = greatest ? (T)__builtin_nanf("") : 0;
  for (dim_t i = 0; i < number * targets; i++) result[i] = none;
  if (libjit_small) {
    for (dim_t row = 0; row < number; row++) {
      for (dim_t t = 0; t < count; t++) {
        int32_t at = trees[2 * t];
        while (at >= 0) at = OF(child)(branches, thresholds, missing, at, input + row * features);
        OF(count_leaf)(result + row * targets + trees[2 * t + 1], weights + ~at * width, width, greatest);
      }
    }
  } else {
    OF(walk_rows)(result, input, branches, thresholds, trees, weights, number, features, count, width, targets, greatest,
                  missing);
  }
  if (greatest)
    for (dim_t i = 0; i < number * targets; i++) result[i] = result[i] != result[i] ? 0 : result[i];
}

#endif
