/// Matrix products, those with tiles once for each kind of them: this file reads itself. Determinants.
#ifndef T
#include "dot.h"
#include "kernels_gen.h"
#include "lanes.h"
#include "libjit.h"
#include "product.h"

/// Offset of an operand for the result's matrix number `batch`; dimensions of 1 are broadcast. The last `inner`
/// dimensions of the operand are a matrix. Without strides there are no gaps, and the offset is one in matrices.
INLINE dim_t batch_offset(dim_t batch, const ints_t *result_shape, const ints_t *shape, const ints_t *strides,
                          dim_t inner) {
  dim_t offset = 0, step = 1, more = result_shape->size - 2 - (shape->size - inner);
  for (dim_t i = result_shape->size - 3; i >= more; i--) {
    dim_t index = batch % result_shape->at[i], extent = shape->at[i - more];
    offset += extent == 1 ? 0 : index * (strides ? strides->at[i - more] : step);
    step *= extent;
    batch /= result_shape->at[i];
  }
  return offset;
}

/// M x K times K x N of integers, which have no tiles. `M_T` is the type that is multiplied: unsigned, which wraps.
#define MULTIPLY(SUFFIX, T, M_T)                                                                                       \
  INLINE void multiply_##SUFFIX(T *result, const T *lhs, const T *rhs, dim_t rows, dim_t depth, dim_t cols) {          \
    for (dim_t m = 0; m < rows; m++) {                                                                                 \
      T *to = result + m * cols;                                                                                       \
      for (dim_t n = 0; n < cols; n++) to[n] = 0;                                                                      \
      for (dim_t k = 0; k < depth; k++)                                                                                \
        for (dim_t n = 0; n < cols; n++)                                                                               \
          to[n] = (T)((M_T)to[n] + (M_T)lhs[m * depth + k] * (M_T)rhs[k * cols + n]);                                  \
    }                                                                                                                  \
  }

MULTIPLY(i32, int32_t, uint32_t)
MULTIPLY(i64, int64_t, uint64_t)
MULTIPLY(u32, uint32_t, uint32_t)
MULTIPLY(u64, uint64_t, uint64_t)

/// numpy.matmul of operands of rank 2 and more.
#define MATMUL(SUFFIX, T)                                                                                              \
  KERNEL void libjit_mat_mul_##SUFFIX(T *result, const T *lhs, const T *rhs, const ints_t *result_shape,               \
                                      const ints_t *lhs_shape, const ints_t *rhs_shape) {                              \
    dim_t rank = result_shape->size, rows = result_shape->at[rank - 2], cols = result_shape->at[rank - 1];             \
    dim_t depth = lhs_shape->at[lhs_shape->size - 1], batches = count_between(result_shape, 0, rank - 2);              \
    for (dim_t batch = 0; batch < batches; batch++) {                                                                  \
      const T *left = lhs + batch_offset(batch, result_shape, lhs_shape, NULL, 2) * rows * depth;                      \
      const T *right = rhs + batch_offset(batch, result_shape, rhs_shape, NULL, 2) * depth * cols;                     \
      multiply_##SUFFIX(result + batch * rows * cols, left, right, rows, depth, cols);                                 \
    }                                                                                                                  \
  }

MATMUL(i32, int32_t)
MATMUL(i64, int64_t)
MATMUL(u32, uint32_t)
MATMUL(u64, uint64_t)

/// By elimination, with the largest element of a column as the pivot.
#define DETERMINANT(SUFFIX, T, ABS)                                                                                    \
  INLINE T determinant_##SUFFIX(T *work, dim_t n) {                                                                    \
    T product = 1;                                                                                                     \
    for (dim_t k = 0; k < n; k++) {                                                                                    \
      dim_t pivot = k;                                                                                                 \
      for (dim_t i = k + 1; i < n; i++)                                                                                \
        if (ABS(work[i * n + k]) > ABS(work[pivot * n + k])) pivot = i;                                                \
      for (dim_t j = k; j < n; j++) {                                                                                  \
        T moved = work[k * n + j];                                                                                     \
        work[k * n + j] = work[pivot * n + j];                                                                         \
        work[pivot * n + j] = moved;                                                                                   \
      }                                                                                                                \
      T largest = work[k * n + k];                                                                                     \
      product *= pivot == k ? largest : -largest;                                                                      \
      for (dim_t i = k + 1; i < n && largest != 0; i++) {                                                              \
        T factor = work[i * n + k] / largest;                                                                          \
        for (dim_t j = k + 1; j < n; j++) work[i * n + j] -= factor * work[k * n + j];                                 \
      }                                                                                                                \
    }                                                                                                                  \
    return product;                                                                                                    \
  }                                                                                                                    \
                                                                                                                       \
  KERNEL void libjit_determinant_##SUFFIX(T *restrict result, const T *restrict input, T *restrict work,               \
                                          const ints_t *result_shape, const ints_t *input_shape,                       \
                                          const ints_t *work_shape) {                                                  \
    dim_t n = work_shape->at[0], matrices = count(result_shape);                                                       \
    for (dim_t m = 0; m < matrices; m++) {                                                                             \
      for (dim_t i = 0; i < n * n; i++) work[i] = input[m * n * n + i];                                                \
      result[m] = determinant_##SUFFIX(work, n);                                                                       \
    }                                                                                                                  \
  }

DETERMINANT(f32, float, __builtin_fabsf)
DETERMINANT(f64, double, __builtin_fabs)

#include "as_f32.h"
#include "matmul.c"
#include "as_f64.h"
#include "matmul.c"
#include "as_i8.h"
#include "matmul.c"
#include "as_u8.h"
#include "matmul.c"
#include "as_bf16.h"
#include "matmul.c"
#else

/// Matrices of M x K times matrices of K x N, the right side packed (see libjit/README.md). Matrices on the left that
/// all meet the same one are one long matrix, where their rows are at equal distances: the caller says so.
KERNEL void OF(libjit_cpu_matmul)(S *result, const T *lhs, const F *rhs, const ints_t *result_shape,
                                  const ints_t *lhs_shape, const ints_t *rhs_shape, const ints_t *result_strides,
                                  const ints_t *lhs_strides, dim_t tile_pixels, dim_t tile_vectors, dim_t slab,
                                  dim_t fetch, dim_t first_unit, dim_t last_unit, const tiles_t *tiles,
                                  epilogue_t epilogue, const void *env) {
  dim_t rank = result_shape->size, inner = lhs_shape->size - 1, depth = lhs_shape->at[inner];
  dim_t packed = rhs_shape->at[rhs_shape->size - 1] / D;
  product_t product = {.size = sizeof(T),
                       .sum_size = sizeof(S),
                       .lanes = lanes_of(W, packed),
                       .dot = D,
                       .images = count_between(result_shape, 0, rank - 2),
                       .groups = 1,
                       .pixels = result_shape->at[rank - 2],
                       .width = tile_pixels,
                       .channels = result_shape->at[rank - 1],
                       .depth = depth,
                       .block = packed,
                       .step = lhs_strides->at[inner - 1],
                       .kernel_h = 1,
                       .kernel_w = 1,
                       .stride_h = 1,
                       .stride_w = 1,
                       .pointwise = true};
  decision_t decision = {tile_pixels, tile_vectors, slab, fetch};
  S sums[MAX_TILE_SUMS * W] ALIGNED;
  dim_t rhs_size = count_between(rhs_shape, rhs_shape->size - 3, rhs_shape->size);
  for (dim_t unit = first_unit; unit < last_unit; unit++) {
    unit_t at = find_unit(&product, decision, unit);
    product.input = lhs + batch_offset(at.image, result_shape, lhs_shape, lhs_strides, 2);
    product.weights = rhs + batch_offset(at.image, result_shape, rhs_shape, NULL, 3) * rhs_size;
    multiply_unit(&product, decision, at, sums, NULL, tiles, epilogue, env);
  }
}

#if D != 2  // numbers in bf16 are multiplied in pairs only

/// total + the sum of left[k] * right[k] for at least one k. Where each operation is a call, the plain products of a
/// network share this function: calling it takes less code than the loop does.
#if IN_HARDWARE
KERNEL
#endif
S OF(libjit_dot)(S total, const T *left, const F *right, dim_t count) {
  do total += *left++ * *right++;
  while (--count);
  return total;
}

/// Matrices of M x K times the transposes of N x K, a number at a time: the least code, where that counts.
KERNEL void OF(libjit_cpu_plain_matmul)(S *result, const T *lhs, const F *rhs, const ints_t *result_shape,
                                        const ints_t *lhs_shape, const ints_t *rhs_shape,
                                        const ints_t *result_strides, const ints_t *lhs_strides,
                                        const ints_t *rhs_strides, const tiles_t *tiles, epilogue_t epilogue,
                                        const void *env) {
  dim_t rank = result_shape->size, rows = result_shape->at[rank - 2], cols = result_shape->at[rank - 1];
  dim_t batches = count_between(result_shape, 0, rank - 2), depth = lhs_shape->at[lhs_shape->size - 1];
  dim_t row_step = lhs_strides->at[lhs_shape->size - 2], col_step = rhs_strides->at[rhs_shape->size - 2];
  dim_t step = rhs_strides->at[rhs_shape->size - 1];
  for (dim_t batch = 0; batch < batches; batch++) {
    const T *left = lhs + batch_offset(batch, result_shape, lhs_shape, lhs_strides, 2);
    const F *right = rhs + batch_offset(batch, result_shape, rhs_shape, rhs_strides, 2);
    for (dim_t m = 0; m < rows; m++) {
      for (dim_t n = 0; n < cols; n++) {
        S total = 0;
        if (step == 1 && depth) total = OF(libjit_dot)(total, left + m * row_step, right + n * col_step, depth);
        else
          for (dim_t k = 0; k < depth; k++) total += left[m * row_step + k] * right[n * col_step + k * step];
        epilogue(env, &total, 1, batch * rows + m, n, 1, 1);
      }
    }
  }
}

#endif

#if D == 1

/// Lines of a matrix that are added to the result at once, and columns that are summed at once.
#ifndef ROW_LINES
#define ROW_LINES 8
#define ROW_COLUMNS 4
#define MANY_DEPTH 512 // beyond it columns that are read at once compete for few lines of the cache
#define LINE_BYTES 64  // of most caches
#define FETCHED_AHEAD (4096 / (dim_t)sizeof(F))
#define UNIT_COLUMNS 64 // glowpy/backends/cpu/strategy/work.py has the same number
#endif

/// A row times `vectors` vectors of columns that lie side by side in each line of the matrix, `step` after the last one.
INLINE void OF(row_times_columns)(S *result, const T *row, const F *matrix, dim_t depth, dim_t step, dim_t vectors) {
  V sums[MAX_TILE_VECTORS];
  UNROLL for (dim_t v = 0; v < vectors; v++) sums[v] = (V){0};
  ROLLED for (dim_t k = 0; k < depth; k++) {
    V x = SPLAT(row[k], V);
    UNROLL for (dim_t v = 0; v < vectors; v++)
        sums[v] = MULTIPLY_ADD(sums[v], x, *(const V *)(matrix + k * step + v * W));
  }
  UNROLL for (dim_t v = 0; v < vectors; v++) *(V *)(result + v * W) = sums[v];
}

/// result += some elements of a row times as many lines of a matrix, or = where they are the first. Lines are read from one
/// end to the other, which is what processors fetch ahead, and sums have the order that `row_times_columns` has.
INLINE void OF(add_lines)(S *result, const T *row, const F *matrix, dim_t cols, dim_t step, dim_t lines, bool first) {
  V x[ROW_LINES];
  UNROLL for (dim_t k = 0; k < lines; k++) x[k] = SPLAT(row[k], V);
  for (dim_t n = 0; n + W <= cols; n += W) {
    V sum = {0};
    if (!first) sum = *(const V *)(result + n);
    UNROLL for (dim_t k = 0; k < lines; k++) sum = MULTIPLY_ADD(sum, x[k], *(const V *)(matrix + k * step + n));
    *(V *)(result + n) = sum;
  }
}

/// A row times a matrix that lies by rows, of at least a vector of columns; the last vectors may overlap.
INLINE void OF(row_times_lines)(S *result, const T *row, const F *matrix, dim_t depth, dim_t step, dim_t cols) {
  dim_t k = 0;
  for (dim_t n = 0; depth == 0 && n < cols; n++) result[n] = 0;
  for (; k + ROW_LINES <= depth; k += ROW_LINES)
    OF(add_lines)(result, row + k, matrix + k * step, cols, step, ROW_LINES, k == 0);
  for (; k < depth; k++) OF(add_lines)(result, row + k, matrix + k * step, cols, step, 1, k == 0);
  if (cols % W) OF(row_times_columns)(result + cols - W, row, matrix + cols - W, depth, step, 1);
}

/// A row for products with columns that lie by themselves: after whole vectors the last elements, wherever a vector of a column
/// has them, from `last` on. The vector's other lanes count for nothing, whatever is there.
typedef struct {
  const T *elements;
  dim_t whole, left, last;
  V rest;
  OF(take) takes;
} OF(row_t);

INLINE OF(row_t) OF(row_of)(const T *elements, dim_t depth) {
  dim_t whole = depth / W * W, left = depth - whole, last = depth < W ? 0 : depth - W, first = depth < W ? 0 : W - left;
  OF(row_t) row = {elements, whole, left, last, {0}, {0}};
  for (dim_t i = first; i < first + left; i++) {
    row.rest[i] = elements[last + i];
    row.takes[i] = -1;
  }
  return row;
}

/// A row times each of `count` columns, `step` after the last one, in lanes that are still to be added up.
INLINE void OF(row_times_lanes)(V *sums, OF(row_t) row, const F *matrix, dim_t step, dim_t count) {
  UNROLL for (dim_t n = 0; n < count; n++) sums[n] = (V){0};
  ROLLED for (dim_t k = 0; k < row.whole; k += W) {
    V x = *(const V *)(row.elements + k);
    UNROLL for (dim_t n = 0; n < count; n++)
        sums[n] = MULTIPLY_ADD(sums[n], x, *(const V *)(matrix + n * step + k));
  }
  if (!row.left) return;
  UNROLL for (dim_t n = 0; n < count; n++) {
    V column = OF(choose_lanes)(row.takes, *(const V *)(matrix + n * step + row.last), (V){0});
    sums[n] = MULTIPLY_ADD(sums[n], row.rest, column);
  }
}

/// The lanes of two vectors, in each of which the halves of groups of lanes are added: half as many lanes of each.
INLINE V OF(halves_added)(V a, V b, dim_t half) {
  V low = a, high = a;
  UNROLL for (dim_t lane = 0; lane < W; lane++) {
    dim_t from = lane / half * 2 * half + lane % half;
    low[lane] = from < W ? a[from] : b[from - W];
    high[lane] = from < W ? a[from + half] : b[from + half - W];
  }
  return low + high;
}

/// A row times as many columns as a vector has lanes: their lanes are added up together, a half after the other.
INLINE void OF(row_times_many)(S *result, OF(row_t) row, const F *matrix, dim_t step) {
  V sums[W];
  OF(row_times_lanes)(sums, row, matrix, step, W);
  UNROLL for (dim_t half = W / 2; half; half /= 2) {
    UNROLL for (dim_t i = 0; i < half; i++) sums[i] = OF(halves_added)(sums[2 * i], sums[2 * i + 1], half);
  }
  *(V *)result = sums[0];
}

/// A row times `count` columns. A sum is that of every lane first, then halves of the lanes are added.
INLINE void OF(row_times_each)(S *result, OF(row_t) row, const F *matrix, dim_t step, dim_t count) {
  V sums[ROW_COLUMNS];
  OF(row_times_lanes)(sums, row, matrix, step, count);
  UNROLL for (dim_t n = 0; n < count; n++) result[n] = OF(sum_of_lanes)(sums[n]);
}

/// Fetches as many columns as a vector has lanes, which lie one after the other, a page further on: a processor begins to fetch
/// what comes next only a little before such short sums need it.
INLINE void OF(fetch_columns)(const F *matrix, dim_t step) {
  for (dim_t i = 0; i < W * step; i += LINE_BYTES / (dim_t)sizeof(F))
    __builtin_prefetch(matrix + FETCHED_AHEAD + i, 0, 3);
}

/// A row times columns that each lie by themselves, after which there are so many more. Nothing is read beyond the last of these.
INLINE void OF(row_times_separate)(S *result, const T *elements, const F *matrix, dim_t depth, dim_t step, dim_t cols,
                                   dim_t more) {
  OF(row_t) row = OF(row_of)(elements, depth);
  dim_t n = 0, whole = cols;
  while (depth < W && whole > 0 && (cols + more - whole) * step + depth < W) whole--;
  if (depth < MANY_DEPTH)
    for (; n + W <= whole; n += W) {
      if (step < depth + W) OF(fetch_columns)(matrix + n * step, step);
      OF(row_times_many)(result + n, row, matrix + n * step, step);
    }
  for (; n + ROW_COLUMNS <= whole; n += ROW_COLUMNS)
    OF(row_times_each)(result + n, row, matrix + n * step, step, ROW_COLUMNS);
  for (; n < whole; n++) OF(row_times_each)(result + n, row, matrix + n * step, step, 1);
  for (; n < cols; n++) {
    F column[W] = {0};
    for (dim_t k = 0; k < depth; k++) column[k] = matrix[n * step + k];
    OF(row_times_each)(result + n, row, column, step, 1);
  }
}

/// A row times columns of a matrix of K x N that lies by rows or by columns, or anyhow; there are so many more columns after these.
INLINE void OF(row_times_some)(S *result, const T *row, const F *matrix, dim_t depth, dim_t line, dim_t step, dim_t cols,
                               dim_t more) {
  if (step == 1 && cols >= W) {
    OF(row_times_lines)(result, row, matrix, depth, line, cols);
    return;
  }
  if (line == 1 && step >= 0) {
    OF(row_times_separate)(result, row, matrix, depth, step, cols, more);
    return;
  }
  for (dim_t n = 0; n < cols; n++) {
    S total = 0;
    for (dim_t k = 0; k < depth; k++) total += row[k] * matrix[k * line + n * step];
    result[n] = total;
  }
}

/// Rows times matrices. A unit is some columns of one matrix, of which the last one takes what is left as well: there are never
/// fewer than a vector has, so that the sum of a column does not depend on the units beside its own.
KERNEL void OF(libjit_cpu_row_matmul)(S *result, const T *lhs, const F *rhs, const ints_t *result_shape,
                                      const ints_t *lhs_shape, const ints_t *rhs_shape, const ints_t *lhs_strides,
                                      const ints_t *rhs_strides, dim_t first_unit, dim_t last_unit) {
  dim_t rank = result_shape->size, cols = result_shape->at[rank - 1], depth = lhs_shape->at[lhs_shape->size - 1];
  dim_t line = rhs_strides->at[rhs_shape->size - 2], step = rhs_strides->at[rhs_shape->size - 1];
  dim_t units = cols < UNIT_COLUMNS ? 1 : cols / UNIT_COLUMNS, next;
  for (dim_t unit = first_unit; unit < last_unit; unit = next) {
    dim_t batch = unit / units, first = unit % units * UNIT_COLUMNS;
    next = min_dim(last_unit, (batch + 1) * units);
    dim_t last = next == (batch + 1) * units ? cols : next % units * UNIT_COLUMNS;
    const T *row = lhs + batch_offset(batch, result_shape, lhs_shape, lhs_strides, 2);
    const F *matrix = rhs + batch_offset(batch, result_shape, rhs_shape, rhs_strides, 2) + first * step;
    OF(row_times_some)(result + batch * cols + first, row, matrix, depth, line, step, last - first, cols - last);
  }
}

#endif

#endif
