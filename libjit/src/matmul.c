/// Matrix products.
#include "kernels_gen.h"
#include "libjit.h"
#include "tile.h"

/// M x K times K x N, the right side packed (see libjit/README.md).
KERNEL void libjit_cpu_matmul_f32(float *result, const float *lhs, const float *rhs, const ints_t *result_shape,
                                  const ints_t *lhs_shape, const ints_t *rhs_shape, dim_t tile_rows,
                                  dim_t tile_vectors, epilogue_t epilogue, const void *env) {
  dim_t depth = lhs_shape->at[1];
  grid_t grid = {.height = 1,
                 .width = result_shape->at[0],
                 .col_step = depth,
                 .taps_h = 1,
                 .taps_w = 1,
                 .run = depth,
                 .channels = result_shape->at[1],
                 .ld = result_shape->at[1],
                 .weight_step = tile_vectors * LANES};
  work_t work = {
      .result = result, .input = lhs, .weights = rhs, .padded_weights = true, .epilogue = epilogue, .env = env};
  multiply_grid(work, grid, (tile_t){1, tile_rows, tile_vectors});
}

/// Offset, in matrices, of an operand for the result's matrix number `batch`; dimensions of 1 are broadcast.
INLINE dim_t batch_offset(dim_t batch, const ints_t *result_shape, const ints_t *shape) {
  dim_t offset = 0, step = 1;
  UNROLL for (dim_t i = result_shape->size - 3; i >= 0; i--) {
    dim_t own = i - (result_shape->size - shape->size);
    dim_t index = batch % result_shape->at[i], extent = own >= 0 ? shape->at[own] : 1;
    offset += extent == 1 ? 0 : index * step;
    step *= extent;
    batch /= result_shape->at[i];
  }
  return offset;
}

/// M x K times K x N for element kinds without a tile. `M_T` is the type that is multiplied: unsigned for integers,
/// which wrap.
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

/// The tile for a right side read in place.
#if VECTOR_BYTES == 64 || defined(__aarch64__) || defined(__powerpc64__)
#define PLAIN_TILE ((tile_t){1, 12, 2})
#else
#define PLAIN_TILE ((tile_t){1, 6, 2})
#endif

INLINE void multiply_f32(float *result, const float *lhs, const float *rhs, dim_t rows, dim_t depth, dim_t cols) {
  grid_t grid = {.height = 1,
                 .width = rows,
                 .col_step = depth,
                 .taps_h = 1,
                 .taps_w = 1,
                 .run = depth,
                 .channels = cols,
                 .ld = cols,
                 .weight_step = cols};
  multiply_grid((work_t){.result = result, .input = lhs, .weights = rhs}, grid, PLAIN_TILE);
}

MULTIPLY(f64, double, double)
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
      const T *left = lhs + batch_offset(batch, result_shape, lhs_shape) * rows * depth;                               \
      const T *right = rhs + batch_offset(batch, result_shape, rhs_shape) * depth * cols;                              \
      multiply_##SUFFIX(result + batch * rows * cols, left, right, rows, depth, cols);                                 \
    }                                                                                                                  \
  }

MATMUL(f32, float)
MATMUL(f64, double)
MATMUL(i32, int32_t)
MATMUL(i64, int64_t)
MATMUL(u32, uint32_t)
MATMUL(u64, uint64_t)
