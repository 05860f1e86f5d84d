/// Matrix products.
#include "kernels_gen.h"
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

/// Matrices of M x K times matrices of K x N, the right side packed (see libjit/README.md). Matrices on the left that
/// all meet the same one are one long matrix, where their rows are at equal distances.
KERNEL void libjit_cpu_matmul_f32(float *result, const float *lhs, const float *rhs, const ints_t *result_shape,
                                  const ints_t *lhs_shape, const ints_t *rhs_shape, const ints_t *result_strides,
                                  const ints_t *lhs_strides, dim_t tile_pixels, dim_t tile_vectors, dim_t slab,
                                  dim_t fetch, dim_t first_unit, dim_t last_unit, const tiles_t *tiles,
                                  epilogue_t epilogue, const void *env) {
  dim_t rank = result_shape->size, inner = lhs_shape->size - 1, depth = lhs_shape->at[inner];
  dim_t cols = result_shape->at[rank - 1], step = loop_step(lhs_shape, lhs_strides, 0, inner);
  bool joined = step >= 0 && count_between(rhs_shape, 0, rhs_shape->size - 3) == 1;
  dim_t rows = joined ? count_between(result_shape, 0, rank - 1) : result_shape->at[rank - 2];
  product_t product = {.images = joined ? 1 : count_between(result_shape, 0, rank - 2),
                       .groups = 1,
                       .pixels = rows,
                       .width = tile_pixels,
                       .channels = cols,
                       .depth = depth,
                       .step = joined ? step : lhs_strides->at[inner - 1],
                       .kernel_h = 1,
                       .kernel_w = 1,
                       .stride_h = 1,
                       .stride_w = 1,
                       .pointwise = true};
  decision_t decision = {tile_pixels, tile_vectors, slab, fetch};
  dim_t rhs_size = count_between(rhs_shape, rhs_shape->size - 3, rhs_shape->size);
  for (dim_t unit = first_unit; unit < last_unit; unit++) {
    unit_t at = find_unit(&product, decision, unit);
    product.input = lhs + (joined ? 0 : batch_offset(at.image, result_shape, lhs_shape, lhs_strides, 2));
    product.weights = rhs + (joined ? 0 : batch_offset(at.image, result_shape, rhs_shape, NULL, 3) * rhs_size);
    multiply_unit(&product, decision, at, tiles, epilogue, env);
  }
}

typedef uint32_t v4 __attribute__((vector_size(16), aligned(4), may_alias));

/// Four rows of four elements, `step` apart, as columns `block` apart.
INLINE void transpose_4x4(uint32_t *to, const uint32_t *from, dim_t step, dim_t block) {
  v4 a = *(const v4 *)from, b = *(const v4 *)(from + step);
  v4 c = *(const v4 *)(from + 2 * step), d = *(const v4 *)(from + 3 * step);
  v4 ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5), ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  v4 cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  *(v4 *)to = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
  *(v4 *)(to + block) = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
  *(v4 *)(to + 2 * block) = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
  *(v4 *)(to + 3 * block) = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

/// One block: `valid` columns, `col_step` apart, of `depth` elements, `row_step` apart; zeros in the other columns.
INLINE void pack_block(uint32_t *result, const uint32_t *from, dim_t depth, dim_t valid, dim_t block, dim_t row_step,
                       dim_t col_step) {
  dim_t rest = (block - valid) * (dim_t)sizeof(uint32_t);
  if (col_step == 1) {
    for (dim_t k = 0; k < depth; k++) {
      __builtin_memcpy(result + k * block, from + k * row_step, valid * sizeof(uint32_t));
      __builtin_memset(result + k * block + valid, 0, rest);
    }
    return;
  }
  dim_t whole_rows = row_step == 1 ? depth / 4 * 4 : 0, whole_cols = valid / 4 * 4;
  for (dim_t k = 0; k < whole_rows; k += 4) {
#pragma clang loop unroll(disable)
    for (dim_t c = 0; c < whole_cols; c += 4)
      transpose_4x4(result + k * block + c, from + k + c * col_step, col_step, block);
  }
  for (dim_t k = 0; k < depth; k++) {
    dim_t done = k < whole_rows ? whole_cols : 0;
#pragma clang loop unroll(disable)
    for (dim_t c = done; c < valid; c++) result[k * block + c] = from[k * row_step + c * col_step];
    __builtin_memset(result + k * block + valid, 0, rest);
  }
}

/// Packs matrices K x N into blocks of columns (see libjit/README.md). Matrices that were transposed by their strides
/// are read along their rows.
KERNEL void libjit_cpu_pack_matrix_x32(uint32_t *result, const uint32_t *input, const ints_t *result_shape,
                                       const ints_t *input_shape, const ints_t *input_strides, dim_t block) {
  dim_t rank = input_shape->size, depth = input_shape->at[rank - 2], cols = input_shape->at[rank - 1];
  dim_t matrices = count_between(input_shape, 0, rank - 2);
  for (dim_t matrix = 0; matrix < matrices; matrix++) {
    const uint32_t *from = input;
    for (dim_t i = rank - 3, rest = matrix; i >= 0; i--) {
      from += rest % input_shape->at[i] * input_strides->at[i];
      rest /= input_shape->at[i];
    }
    for (dim_t col = 0; col < cols; col += block) {
      pack_block(result, from + col * input_strides->at[rank - 1], depth, min_dim(block, cols - col), block,
                 input_strides->at[rank - 2], input_strides->at[rank - 1]);
      result += depth * block;
    }
  }
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

MULTIPLY(f32, float, float)
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
      const T *left = lhs + batch_offset(batch, result_shape, lhs_shape, NULL, 2) * rows * depth;                               \
      const T *right = rhs + batch_offset(batch, result_shape, rhs_shape, NULL, 2) * depth * cols;                              \
      multiply_##SUFFIX(result + batch * rows * cols, left, right, rows, depth, cols);                                 \
    }                                                                                                                  \
  }

MATMUL(f32, float)
MATMUL(f64, double)
MATMUL(i32, int32_t)
MATMUL(i64, int64_t)
MATMUL(u32, uint32_t)
MATMUL(u64, uint64_t)
