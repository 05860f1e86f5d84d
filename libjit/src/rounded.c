/// Matrix products of rows rounded to 8 bits with a right side of 4 or 8 bits, both with a scale for each block of depth.
///
/// The products of a block are added up as integers, four of them by one instruction where there is such. That begins with
/// the zero of the weights times the sum of what is multiplied, less than nothing; it is an integer, too, so that no rounding
/// depends on how LLVM joins multiplications and additions. The sum times both scales is added to the total, block by
/// block. So a row is computed in the same way whatever other rows there are.
///
/// Of 4 bits a word has eight neighbours in depth. Its even and its odd ones are bytes of two words once the others are
/// masked out, which is why rows lie in that order. Those bytes have no sign, and are 8 too large.
#include "dot.h"
#include "kernels_gen.h"
#include "product.h"
#include "saturate.h"
#include "walk.h"

/// Vectors of columns that are packed together. As in weights.c.
#define VECTORS 4
#define COLUMNS (VECTORS * LANES)

/// Rows that are computed together, two vectors of columns at a time, where there are as many.
#if VECTOR_BYTES == 64 || defined(__aarch64__) || defined(__VSX__)
#define ROWS 8
#else
#define ROWS 2
#endif

/// Whether bytes of weights have no sign because the instruction for four products takes one side without.
#if defined(DOT_u8) && !defined(DOT_i8)
#define UNSIGNED 1
#define PARTS 1
#else
#define UNSIGNED 0
#define PARTS PARTS_i8
#endif

/// How much larger the bytes of weights are than what they stand for.
#define EXCESS(BITS) ((BITS) == 4 ? 8 : UNSIGNED ? 128 : 0)

/// A word of the row in every lane.
INLINE void row_word(vi parts[PARTS], const int8_t *from) {
#if UNSIGNED
  parts[0] = broadcast_word(from);
#else
  broadcast_i8(parts, from);
#endif
}

/// Bytes of weights, ready to be multiplied.
INLINE void weight_words(vi parts[PARTS], vi words) {
#if UNSIGNED
  parts[0] = words;
#else
  load_weights_i8(parts, (const int8_t *)&words);
#endif
}

INLINE vi add_words(vi sum, const vi row[PARTS], const vi weights[PARTS]) {
#if UNSIGNED
  sum = DOT_u8(sum, weights[0], row[0]);
#else
  UNROLL for (dim_t i = 0; i < PARTS; i++) sum = add_products_i8(sum, row[i], weights[i]);
#endif
  return sum;
}

/// The words number `half` of stored words: of 4 bits there are two.
INLINE vi stored_words(vi stored, dim_t bits, dim_t half) {
  if (bits == 4) return ((half ? stored >> 4 : stored) ^ SPLAT(0x08080808, vi)) & SPLAT(0x0F0F0F0F, vi);
  return UNSIGNED ? stored ^ SPLAT((int32_t)0x80808080, vi) : stored;
}

/// Rows of a product, `step` apart, and their scales and sums.
typedef struct {
  const int8_t *bytes;
  const float *scales;
  const int32_t *sums;
  dim_t step, blocks;
} rows_t;

/// Weights of some vectors of columns, from the first block of depth on. `zeros` may be NULL.
typedef struct {
  const char *stored;
  const float *scales;
  const int8_t *zeros;
} weights_t;

typedef int8_t small_t __attribute__((vector_size(LANES), aligned(1), may_alias));

/// One block of depth, of so many stored words, added to totals.
INLINE void add_block(vf totals[ROWS][VECTORS], const rows_t *lhs, dim_t index, const int8_t *bytes, weights_t *rhs, dim_t words,
                      dim_t bits, dim_t rows, dim_t vectors) {
  dim_t parts = bits == 4 ? 2 : 1;
  vi sums[ROWS][VECTORS];
  UNROLL for (dim_t v = 0; v < vectors; v++) {
    vi more = SPLAT(EXCESS(bits), vi);
    if (rhs->zeros) more += __builtin_convertvector(*(const small_t *)(rhs->zeros + v * LANES), vi);
    UNROLL for (dim_t r = 0; r < rows; r++) sums[r][v] = more * -lhs->sums[r * lhs->blocks + index];
  }
  ROLLED for (dim_t word = 0; word < words; word++) {
    UNROLL for (dim_t half = 0; half < parts; half++) {
      vi weights[VECTORS][PARTS];
      UNROLL for (dim_t v = 0; v < vectors; v++)
          weight_words(weights[v], stored_words(*(const vi *)(rhs->stored + v * VECTOR_BYTES), bits, half));
      UNROLL for (dim_t r = 0; r < rows; r++) {
        vi row[PARTS];
        row_word(row, bytes + r * lhs->step + 4 * half);
        UNROLL for (dim_t v = 0; v < vectors; v++) sums[r][v] = add_words(sums[r][v], row, weights[v]);
      }
    }
    bytes += 4 * parts;
    rhs->stored += COLUMNS * 4;
  }
  UNROLL for (dim_t v = 0; v < vectors; v++) {
    vf scale = *(const vf *)(rhs->scales + v * LANES);
    UNROLL for (dim_t r = 0; r < rows; r++) {
      vf sum = __builtin_convertvector(sums[r][v], vf);
      totals[r][v] = MULTIPLY_ADD(totals[r][v], sum, scale * lhs->scales[r * lhs->blocks + index]);
    }
  }
  rhs->scales += COLUMNS;
  if (rhs->zeros) rhs->zeros += COLUMNS;
}

/// Some rows times some vectors of columns: whole blocks of depth, and perhaps one of what is left.
INLINE void multiply_rows(float *result, const rows_t *lhs, weights_t rhs, dim_t words, dim_t block_words, dim_t bits,
                          dim_t rows, dim_t vectors) {
  vf totals[ROWS][VECTORS] = {};
  dim_t index = 0, left = words, bytes = bits == 4 ? 8 : 4;
  const int8_t *from = lhs->bytes;
  ROLLED for (; left >= block_words; left -= block_words, index++, from += block_words * bytes)
      add_block(totals, lhs, index, from, &rhs, block_words, bits, rows, vectors);
  if (left) add_block(totals, lhs, index, from, &rhs, left, bits, rows, vectors);
  UNROLL for (dim_t r = 0; r < rows; r++) {
    UNROLL for (dim_t v = 0; v < vectors; v++) *(vf *)(result + (r * vectors + v) * LANES) = totals[r][v];
  }
}

/// Where a tile of a product goes, and the rest of what all tiles of a unit share.
typedef struct {
  rows_t lhs;
  weights_t rhs;
  dim_t words, block_words, col, cols;
  epilogue_t epilogue;
  const void *env;
} columns_t;

/// So many rows from `row` on times vectors `first` and those after it, which may lie beyond the last column.
INLINE void compute_tile(const columns_t *unit, dim_t row, dim_t first, dim_t bits, dim_t rows, dim_t vectors) {
  float tile[ROWS * COLUMNS];
  dim_t left = first * LANES, col = unit->col + left, width = min_dim(vectors * LANES, unit->cols - col);
  if (width <= 0) return;
  rows_t lhs = unit->lhs;
  lhs.bytes += row * lhs.step;
  lhs.scales += row * lhs.blocks;
  lhs.sums += row * lhs.blocks;
  const int8_t *zeros = unit->rhs.zeros;
  weights_t rhs = {unit->rhs.stored + left * 4, unit->rhs.scales + left, zeros ? zeros + left : zeros};
  multiply_rows(tile, &lhs, rhs, unit->words, unit->block_words, bits, rows, vectors);
  unit->epilogue(unit->env, tile, vectors * LANES, row, col, rows, width);
}

/// All rows times a block of columns: as many at once as there are registers for, then fewer with more columns.
INLINE void compute_unit(const columns_t *unit, dim_t bits, dim_t rows) {
  dim_t whole = rows - rows % ROWS, row = whole;
  if (!libjit_small) {
    ROLLED for (dim_t first = 0; first < VECTORS; first += 2) {
      ROLLED for (dim_t r = 0; r < whole; r += ROWS) compute_tile(unit, r, first, bits, ROWS, 2);
    }
    if (ROWS > 4 && row + 4 <= rows) {
      compute_tile(unit, row, 0, bits, 4, VECTORS);
      row += 4;
    }
    if (ROWS > 2 && row + 2 <= rows) {
      compute_tile(unit, row, 0, bits, 2, VECTORS);
      row += 2;
    }
  } else {
    row = 0;
  }
  ROLLED for (; row < rows; row++) compute_tile(unit, row, 0, bits, 1, VECTORS);
}

/// Every unit is a block of columns of all rows.
INLINE void byte_block_matmul(const int8_t *lhs, const float *lhs_scales, const int32_t *lhs_sums, const char *rhs, dim_t bits,
                              const float *scales, const int8_t *zeros, const ints_t *result_shape, const ints_t *lhs_shape,
                              const ints_t *rhs_shape, const ints_t *scales_shape, dim_t block, dim_t first_unit,
                              dim_t last_unit, epilogue_t epilogue, const void *env) {
  dim_t rank = result_shape->size, rows = count_between(result_shape, 0, rank - 1);
  dim_t words = rhs_shape->at[1], blocks = scales_shape->at[1], word = bits == 4 ? 8 : 4;
  for (dim_t index = first_unit; index < last_unit; index++) {
    columns_t unit = {
        .lhs = {lhs, lhs_scales, lhs_sums, lhs_shape->at[rank - 1], blocks},
        .rhs = {rhs + index * words * COLUMNS * 4, scales + index * blocks * COLUMNS,
                zeros ? zeros + index * blocks * COLUMNS : zeros},
        .words = words,
        .block_words = min_dim(ceil_div(block, word), words),
        .col = index * COLUMNS,
        .cols = result_shape->at[rank - 1],
        .epilogue = epilogue,
        .env = env,
    };
    compute_unit(&unit, bits, rows);
  }
}

#define BYTE_BLOCK_MATMUL(SUFFIX, T, BITS)                                                                             \
  KERNEL void libjit_cpu_byte_block_matmul_##SUFFIX(                                                                   \
      float *result, const int8_t *lhs, const float *lhs_scales, const int32_t *lhs_sums, const T *rhs,                \
      const float *scales, const int8_t *zeros, const ints_t *result_shape, const ints_t *lhs_shape,                   \
      const ints_t *lhs_scales_shape, const ints_t *lhs_sums_shape, const ints_t *rhs_shape,                           \
      const ints_t *scales_shape, const ints_t *zeros_shape, const ints_t *result_strides, dim_t block,                \
      dim_t first_unit, dim_t last_unit, const tiles_t *tiles, epilogue_t epilogue, const void *env) {                 \
    byte_block_matmul(lhs, lhs_scales, lhs_sums, (const char *)rhs, BITS, scales, count(zeros_shape) ? zeros : NULL,   \
                      result_shape, lhs_shape, rhs_shape, scales_shape, block, first_unit, last_unit, epilogue, env);  \
  }

BYTE_BLOCK_MATMUL(i8, int8_t, 8)
BYTE_BLOCK_MATMUL(u32, uint32_t, 4)

/// Neighbours whose order may change.
#define TOGETHER 8

typedef int8_t eight_t __attribute__((vector_size(TOGETHER), aligned(1), may_alias));

/// Puts the even ones of eight neighbours before the odd ones.
INLINE void put_apart(int8_t *bytes) {
  eight_t eight = *(const eight_t *)bytes;
  *(eight_t *)bytes = __builtin_shufflevector(eight, eight, 0, 2, 4, 6, 1, 3, 5, 7);
}

/// The largest magnitude of some numbers.
INLINE float largest_of(const float *from, dim_t count) {
  vi sizes = {0};
  dim_t i = 0;
  for (; i + LANES <= count; i += LANES) sizes = __builtin_elementwise_max(sizes, *(const vi *)(from + i) & 0x7FFFFFFF);
  UNROLL for (int half = LANES / 2; half > 0; half /= 2) {
    vi others = sizes;
    UNROLL for (int lane = 0; lane < half; lane++) others[lane] = sizes[lane + half];
    sizes = __builtin_elementwise_max(sizes, others);
  }
  int32_t largest = sizes[0];
  for (; i < count; i++) largest = (int32_t)max_dim(largest, bits_f32(from[i]) & 0x7FFFFFFF);
  return float_of_bits((uint32_t)largest);
}

/// The integers nearest to numbers times `factor`, halves to even; they are so small that a sum leaves them in the low bits.
INLINE vi nearest_integers(vf numbers, float factor) {
#pragma clang fp contract(off)
  vf products = numbers * factor;
  return (vi)(products + 0x1.8p23f) - ROUNDING_BITS;
}

/// One block. Returns its scale, which is NaN where a number is infinite; what is left of eight numbers is filled up with zeros.
INLINE float round_block(int8_t *restrict to, int32_t *restrict sum, const float *restrict from, dim_t count, bool apart) {
  float scale = largest_of(from, count) / 127.0f;
  scale += scale - scale;
  float inverse = scale >= 0x1p-126f ? 1.0f / scale : 0.0f;
  vi sums = {0};
  dim_t i = 0, whole = ceil_div(count, TOGETHER) * TOGETHER;
  for (; i + LANES <= count; i += LANES) {
    vi codes = nearest_integers(*(const vf *)(from + i), inverse);
    *(small_t *)(to + i) = __builtin_convertvector(codes, small_t);
    sums += codes;
  }
  int32_t total = 0;
  UNROLL for (int lane = 0; lane < LANES; lane++) total += sums[lane];
  for (; i < count; i++) {
    int32_t code = nearest_integers(SPLAT(from[i], vf), inverse)[0];
    to[i] = (int8_t)code;
    total += code;
  }
  for (i = count; i < whole; i++) to[i] = 0;
  if (apart)
    for (i = 0; i < whole; i += TOGETHER) put_apart(to + i);
  *sum = total;
  return scale;
}

/// Every unit is a row.
KERNEL void libjit_cpu_quantize_blocks_f32(int8_t *restrict result, float *restrict scales, int32_t *restrict sums,
                                           const float *restrict input, const ints_t *result_shape, const ints_t *scales_shape, const ints_t *sums_shape,
                                           const ints_t *input_shape, const ints_t *input_strides, dim_t block, dim_t bits,
                                           dim_t first_unit, dim_t last_unit) {
  dim_t rank = input_shape->size, depth = input_shape->at[rank - 1];
  dim_t step = result_shape->at[rank - 1], blocks = scales_shape->at[rank - 1];
  walk_t walk = walk_over(input_shape, input_strides, input_strides);
  walk.loop[MAX_RANK].size = 1;
  walk = merge_loops(walk);
  for (dim_t row = first_unit; row < last_unit; row++) {
    const float *from = input + locate(&walk, row).from;
    for (dim_t index = 0; index < blocks; index++) {
      dim_t first = index * block, count = min_dim(block, depth - first);
      scales[row * blocks + index] =
          round_block(result + row * step + first, &sums[row * blocks + index], from + first, count, bits == 4);
    }
  }
}
