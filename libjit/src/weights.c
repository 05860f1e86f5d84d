/// Matrix products of floats with a right side of 4 or 8 bits, which has a scale for each column and block of depth.
///
/// What is stored is made a float in a register, on the way to the multiplication: a product of one row reads a quarter or an
/// eighth of what floats take. All rows of a tile share that work. For each block the products of its depth are added
/// up in order; the sum, less the zero times the sum of what was multiplied, is multiplied by the scale and added to
/// the total. So a row is computed in the same way whatever other rows there are.
#include "dot.h"
#include "kernels_gen.h"
#include "product.h"

/// Vectors of columns that are packed together, and computed together.
#define VECTORS 4
#define COLUMNS (VECTORS * LANES)

/// Rows that are computed together where there are as many: sums and weights of both sizes fit into the registers.
#if VECTOR_BYTES == 64 || defined(__aarch64__) || defined(__VSX__)
#define ROWS 4
#else
#define ROWS 2
#endif

/// Integers of 4 bits in a word.
#define WORD 8

typedef int8_t small_t __attribute__((vector_size(LANES), aligned(1), may_alias));

/// Number `place` of 4 bits, which has a sign, of each word.
INLINE vf nibble(vi words, dim_t place) {
#if VECTOR_BYTES == 64
  // The lowest 4 bits choose from a table.
  const vf table = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
  return (vf)__builtin_ia32_permvarsf512(table, words >> (int)(4 * place));
#else
  return __builtin_convertvector(words << (int)(28 - 4 * place) >> 28, vf);
#endif
}

/// The integers number `place` of a step of WORD, of vector `v`.
INLINE vf integers(const char *weights, dim_t bits, dim_t place, dim_t v) {
  if (bits == 4) return nibble(*(const vi *)(weights + v * VECTOR_BYTES), place);
  return __builtin_convertvector(*(const small_t *)(weights + (place * VECTORS + v) * LANES), vf);
}

/// Adds the products of one place in depth to the sums of each row, and to `inputs` what was multiplied.
INLINE void add_place(vf sums[ROWS][VECTORS], vf inputs[ROWS], const float *lhs, dim_t step, const char *weights,
                      dim_t bits, dim_t place, dim_t rows) {
  vf weight[VECTORS];
  UNROLL for (dim_t v = 0; v < VECTORS; v++) weight[v] = integers(weights, bits, place, v);
  UNROLL for (dim_t r = 0; r < rows; r++) {
    vf x = SPLAT(lhs[r * step + place], vf);
    inputs[r] += x;
    UNROLL for (dim_t v = 0; v < VECTORS; v++) sums[r][v] = MULTIPLY_ADD(sums[r][v], x, weight[v]);
  }
}

/// Some rows times a block of columns. `zeros` may be NULL.
INLINE void multiply_block(float *totals, const float *lhs, dim_t step, const char *weights, dim_t bits,
                           const float *scales, const int8_t *zeros, dim_t depth, dim_t block, dim_t rows) {
  for (dim_t i = 0; i < rows * COLUMNS; i++) totals[i] = 0;
  for (dim_t first = 0; first < depth; first += block) {
    vf sums[ROWS][VECTORS] = {}, inputs[ROWS] = {};
    dim_t left = min_dim(block, depth - first);
    if (!libjit_small) {
      ROLLED for (; left >= WORD; left -= WORD) {
        // Loads wait for the arithmetic before them: too few of them are on the way to keep memory busy.
        UNROLL for (dim_t i = 0; i < COLUMNS * bits; i += 64) __builtin_prefetch(weights + i + FETCH_DISTANCE, 0, 2);
        UNROLL for (dim_t i = 0; i < WORD; i++) add_place(sums, inputs, lhs, step, weights, bits, i, rows);
        lhs += WORD;
        weights += WORD * COLUMNS * bits / 8;
      }
    }
    while (left > 0) {
      dim_t count = min_dim(left, WORD);
      ROLLED for (dim_t i = 0; i < count; i++) add_place(sums, inputs, lhs, step, weights, bits, i, rows);
      lhs += count;
      weights += (bits == 4 ? WORD : count) * COLUMNS * bits / 8;
      left -= count;
    }
    UNROLL for (dim_t v = 0; v < VECTORS; v++) {
      vf scale = *(const vf *)(scales + v * LANES), zero = {};
      if (zeros) zero = __builtin_convertvector(*(const small_t *)(zeros + v * LANES), vf);
      UNROLL for (dim_t r = 0; r < rows; r++) {
        vf *total = (vf *)(totals + (r * VECTORS + v) * LANES);
        vf sum = zeros ? sums[r][v] - inputs[r] * zero : sums[r][v];
        *total = MULTIPLY_ADD(*total, sum, scale);
      }
    }
    scales += COLUMNS;
    if (zeros) zeros += COLUMNS;
  }
}

/// Where the rows of image number `image` begin.
INLINE dim_t image_offset(dim_t image, const ints_t *shape, const ints_t *strides) {
  dim_t offset = 0;
  for (dim_t i = shape->size - 3; i >= 0; i--) {
    offset += image % shape->at[i] * strides->at[i];
    image /= shape->at[i];
  }
  return offset;
}

/// Every unit is a block of columns of all rows that meet it.
INLINE void block_matmul(const float *lhs, const char *rhs, dim_t bits, const float *scales, const int8_t *zeros,
                         const ints_t *result_shape, const ints_t *lhs_shape, const ints_t *rhs_shape,
                         const ints_t *scales_shape, const ints_t *lhs_strides, dim_t block, dim_t first_unit,
                         dim_t last_unit, epilogue_t epilogue, const void *env) {
  dim_t rank = result_shape->size, depth = lhs_shape->at[rank - 1], cols = result_shape->at[rank - 1];
  dim_t rows = result_shape->at[rank - 2], step = lhs_strides->at[rank - 2];
  dim_t blocks = ceil_div(cols, COLUMNS), block_bytes = rhs_shape->at[rhs_shape->size - 2] * COLUMNS * (bits == 4 ? 4 : 1);
  dim_t block_scales = scales_shape->at[scales_shape->size - 2] * COLUMNS;
  float totals[ROWS * COLUMNS];
  for (dim_t unit = first_unit; unit < last_unit; unit++) {
    dim_t image = unit / blocks, col = unit % blocks;
    const float *from = lhs + image_offset(image, lhs_shape, lhs_strides);
    const char *weights = rhs + col * block_bytes;
    const float *scale = scales + col * block_scales;
    const int8_t *zero = zeros ? zeros + col * block_scales : NULL;
    dim_t width = min_dim(COLUMNS, cols - col * COLUMNS), row = 0;
    if (!libjit_small) {
      for (; row + ROWS <= rows; row += ROWS) {
        multiply_block(totals, from + row * step, step, weights, bits, scale, zero, depth, block, ROWS);
        epilogue(env, totals, COLUMNS, image * rows + row, col * COLUMNS, ROWS, width);
      }
    }
    for (; row < rows; row++) {
      multiply_block(totals, from + row * step, step, weights, bits, scale, zero, depth, block, 1);
      epilogue(env, totals, COLUMNS, image * rows + row, col * COLUMNS, 1, width);
    }
  }
}

#define BLOCK_MATMUL(SUFFIX, T, BITS)                                                                                  \
  KERNEL void libjit_cpu_block_matmul_##SUFFIX(                                                                        \
      float *result, const float *lhs, const T *rhs, const float *scales, const int8_t *zeros,                         \
      const ints_t *result_shape, const ints_t *lhs_shape, const ints_t *rhs_shape, const ints_t *scales_shape,        \
      const ints_t *zeros_shape, const ints_t *result_strides, const ints_t *lhs_strides, dim_t block,                 \
      dim_t first_unit, dim_t last_unit, const tiles_t *tiles, epilogue_t epilogue, const void *env) {                 \
    block_matmul(lhs, (const char *)rhs, BITS, scales, count(zeros_shape) ? zeros : NULL, result_shape, lhs_shape,     \
                 rhs_shape, scales_shape, lhs_strides, block, first_unit, last_unit, epilogue, env);                   \
  }

BLOCK_MATMUL(i8, int8_t, 8)
BLOCK_MATMUL(u32, uint32_t, 4)
