/// Reductions: sum, product, maximum and minimum over any dimensions, which stay with length 1.
///
/// Neighbouring dimensions that are both reduced, or both kept, are one (walk.h). Then the innermost is either reduced (a row
/// becomes a number) or kept (rows become one row); the loops around it fold into the result, which begins as the identity.
///
/// Sums of floats stay accurate because no accumulator sees many of them: a long row is cut into blocks with a vector of
/// accumulators each, whose sums are added in double precision; rows are added in blocks, too. Integers wrap around.
#include "kernels_gen.h"
#include "libjit.h"
#include "walk.h"

/// Vectors that are accumulated side by side, to hide the latency of one operation.
#define ACCUMULATORS 4

/// Rows (or steps of ACCUMULATORS vectors in one row) that are folded before the result is touched.
#define BLOCK 64

#define ADD(a, b) ((a) + (b))
#define MUL(a, b) ((a) * (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
/// These let a NaN on either side win, as numpy does.
#define MAX_OR_NAN(a, b) ((((a) > (b)) | ((a) != (a))) ? (a) : (b))
#define MIN_OR_NAN(a, b) ((((a) < (b)) | ((a) != (a))) ? (a) : (b))

/// The reduced dimensions do not advance in the result.
INLINE plane_t reduce_plane(const ints_t *result_shape, const ints_t *input_shape) {
  walk_t walk = walk_over(input_shape, result_shape, input_shape);
  UNROLL for (dim_t back = 0; back < MAX_RANK; back++) {
    loop_t *loop = &walk.loop[MAX_RANK - back];
    bool reduced = dim_from_last(result_shape, back) != dim_from_last(input_shape, back);
    loop->to = reduced ? 0 : loop->to;
  }
  return plane_of(walk, false);
}

/// A reduction of elements of one type. Signed sums and products are computed with the unsigned `lane`, which may overflow;
/// `total` is the type in which the blocks of a row are put together.
#define REDUCTION(name, type, lane, total, OP, identity)                                                                       \
  enum { WIDTH_##name = VECTOR_BYTES / sizeof(lane) };                                                                         \
  typedef lane lanes_##name __attribute__((ext_vector_type(WIDTH_##name), aligned(sizeof(lane)), may_alias));                  \
                                                                                                                               \
  INLINE lane across_##name(lanes_##name vector) {                                                                             \
    lane parts[WIDTH_##name];                                                                                                  \
    UNROLL for (int i = 0; i < WIDTH_##name; i++) parts[i] = vector[i];                                                        \
    UNROLL for (int half = WIDTH_##name / 2; half > 0; half /= 2)                                                              \
      UNROLL for (int i = 0; i < half; i++) parts[i] = (lane)OP(parts[i], parts[i + half]);                                    \
    return parts[0];                                                                                                           \
  }                                                                                                                            \
                                                                                                                               \
  /* What `length` contiguous elements amount to; they are at most a block. */                                                 \
  INLINE lane fold_block_##name(const lane *input, dim_t length) {                                                             \
    enum { STEP = ACCUMULATORS * WIDTH_##name };                                                                               \
    lane rest = (lane)(identity);                                                                                              \
    dim_t at = 0;                                                                                                              \
    if (length >= WIDTH_##name) {                                                                                              \
      lanes_##name sums[ACCUMULATORS];                                                                                         \
      UNROLL for (int k = 0; k < ACCUMULATORS; k++) sums[k] = (lanes_##name)(lane)(identity);                                  \
      for (; at + STEP <= length; at += STEP) {                                                                                \
        UNROLL for (int k = 0; k < ACCUMULATORS; k++) {                                                                        \
          lanes_##name next = *(const lanes_##name *)(input + at + k * WIDTH_##name);                                          \
          sums[k] = OP(sums[k], next);                                                                                         \
        }                                                                                                                      \
      }                                                                                                                        \
      for (; at + WIDTH_##name <= length; at += WIDTH_##name) {                                                                \
        lanes_##name next = *(const lanes_##name *)(input + at);                                                               \
        sums[0] = OP(sums[0], next);                                                                                           \
      }                                                                                                                        \
      UNROLL for (int half = ACCUMULATORS / 2; half > 0; half /= 2)                                                            \
        UNROLL for (int k = 0; k < half; k++) sums[k] = OP(sums[k], sums[k + half]);                                           \
      rest = across_##name(sums[0]);                                                                                           \
    }                                                                                                                          \
    for (; at < length; at++) rest = (lane)OP(rest, input[at]);                                                                \
    return rest;                                                                                                               \
  }                                                                                                                            \
                                                                                                                               \
  INLINE lane fold_row_##name(const lane *input, dim_t length) {                                                               \
    enum { LONGEST = BLOCK * ACCUMULATORS * WIDTH_##name };                                                                    \
    if (length <= LONGEST) return fold_block_##name(input, length);                                                            \
    total sum = (total)(identity);                                                                                             \
    for (dim_t at = 0; at < length; at += LONGEST) {                                                                           \
      total block = fold_block_##name(input + at, min_dim(LONGEST, length - at));                                              \
      sum = (total)OP(sum, block);                                                                                             \
    }                                                                                                                          \
    return (lane)sum;                                                                                                          \
  }                                                                                                                            \
                                                                                                                               \
  /* Folds `rows` rows into `vectors` vectors of the result. */                                                                \
  INLINE void fold_strip_##name(lane *restrict result, const lane *restrict input, dim_t rows, dim_t row_step, int vectors) {  \
    lanes_##name sums[ACCUMULATORS];                                                                                           \
    UNROLL for (int k = 0; k < vectors; k++) sums[k] = (lanes_##name)(lane)(identity);                                         \
    for (dim_t r = 0; r < rows; r++) {                                                                                         \
      UNROLL for (int k = 0; k < vectors; k++) {                                                                               \
        lanes_##name next = *(const lanes_##name *)(input + r * row_step + k * WIDTH_##name);                                  \
        sums[k] = OP(sums[k], next);                                                                                           \
      }                                                                                                                        \
    }                                                                                                                          \
    UNROLL for (int k = 0; k < vectors; k++) {                                                                                 \
      lanes_##name *place = (lanes_##name *)(result + k * WIDTH_##name);                                                       \
      lanes_##name old = *place;                                                                                               \
      *place = OP(old, sums[k]);                                                                                               \
    }                                                                                                                          \
  }                                                                                                                            \
                                                                                                                               \
  /* Folds at most BLOCK rows of `cols` contiguous elements into as many elements of the result. */                            \
  INLINE void fold_rows_##name(lane *restrict result, const lane *restrict input, dim_t rows, dim_t cols, dim_t row_step) {    \
    enum { STEP = ACCUMULATORS * WIDTH_##name };                                                                               \
    dim_t c = 0;                                                                                                               \
    for (; c + STEP <= cols; c += STEP) fold_strip_##name(result + c, input + c, rows, row_step, ACCUMULATORS);                \
    for (; c + WIDTH_##name <= cols; c += WIDTH_##name) fold_strip_##name(result + c, input + c, rows, row_step, 1);           \
    for (; c < cols; c++) {                                                                                                    \
      lane sum = (lane)(identity);                                                                                             \
      for (dim_t r = 0; r < rows; r++) sum = (lane)OP(sum, input[r * row_step + c]);                                           \
      result[c] = (lane)OP(result[c], sum);                                                                                    \
    }                                                                                                                          \
  }                                                                                                                            \
                                                                                                                               \
  KERNEL void libjit_reduce_##name(type *restrict result, const type *restrict input, const ints_t *result_shape,              \
                                   const ints_t *input_shape, const ints_t *axes) {                                            \
    lane *restrict folded = (lane *)result;                                                                                    \
    const lane *restrict elements = (const lane *)input;                                                                       \
    plane_t plane = reduce_plane(result_shape, input_shape);                                                                   \
    loop_t row = plane.row, col = plane.col;                                                                                   \
    dim_t results = count(result_shape), planes = iterations(plane.around);                                                    \
    for (dim_t i = 0; i < results; i++) folded[i] = (lane)(identity);                                                          \
    for (dim_t i = 0; i < planes; i++) {                                                                                       \
      loop_t place = locate(plane.around, i);                                                                                  \
      lane *restrict into = folded + place.to;                                                                                 \
      const lane *restrict out_of = elements + place.from;                                                                     \
      if (col.to == 0) {                                                                                                       \
        for (dim_t r = 0; r < row.size; r++) {                                                                                 \
          lane sum = fold_row_##name(out_of + r * row.from, col.size);                                                         \
          into[r * row.to] = (lane)OP(into[r * row.to], sum);                                                                  \
        }                                                                                                                      \
      } else {                                                                                                                 \
        for (dim_t r = 0; r < row.size; r += BLOCK)                                                                            \
          fold_rows_##name(into, out_of + r * row.from, min_dim(BLOCK, row.size - r), col.size, row.from);                     \
      }                                                                                                                        \
    }                                                                                                                          \
  }

/// `first` and `last` are the smallest and the largest value of the type.
#define INTEGER_REDUCTIONS(suffix, type, lane, first, last)    \
  REDUCTION(add_##suffix, type, lane, lane, ADD, 0)            \
  REDUCTION(mul_##suffix, type, lane, lane, MUL, 1)            \
  REDUCTION(max_##suffix, type, type, type, MAX, first)        \
  REDUCTION(min_##suffix, type, type, type, MIN, last)

#define FLOAT_REDUCTIONS(suffix, type)                                         \
  REDUCTION(add_##suffix, type, type, double, ADD, 0)                          \
  REDUCTION(mul_##suffix, type, type, double, MUL, 1)                          \
  REDUCTION(max_##suffix, type, type, type, MAX_OR_NAN, -__builtin_inf())      \
  REDUCTION(min_##suffix, type, type, type, MIN_OR_NAN, __builtin_inf())

FLOAT_REDUCTIONS(f32, float)
FLOAT_REDUCTIONS(f64, double)
INTEGER_REDUCTIONS(i8, int8_t, uint8_t, INT8_MIN, INT8_MAX)
INTEGER_REDUCTIONS(i32, int32_t, uint32_t, INT32_MIN, INT32_MAX)
INTEGER_REDUCTIONS(i64, int64_t, uint64_t, INT64_MIN, INT64_MAX)
INTEGER_REDUCTIONS(u8, uint8_t, uint8_t, 0, UINT8_MAX)
INTEGER_REDUCTIONS(u32, uint32_t, uint32_t, 0, UINT32_MAX)
INTEGER_REDUCTIONS(u64, uint64_t, uint64_t, 0, UINT64_MAX)
