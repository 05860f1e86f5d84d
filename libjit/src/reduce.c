/// Reductions: sum, product, maximum and minimum over any dimensions, which stay with length 1; the places of extremes, and
/// running sums, along one dimension.
///
/// Neighbouring dimensions that are both reduced, or both kept, are one; callers say which. Then the innermost is either
/// reduced (a row becomes a number) or kept (rows become one row); the loops around it fold into the result, which begins as
/// the identity.
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

/// The loops as the caller has arranged them, who knows which are one and which are the plane for all extents: the last two.
/// Reduced ones do not advance in the result.
LATE plane_t arranged_plane(const ints_t *shape, const ints_t *result_strides, const ints_t *input_strides) {
  plane_t plane = {.around = walk_over(shape, result_strides, input_strides)};
  plane.col = plane.around.loop[MAX_RANK];
  plane.row = plane.around.loop[MAX_RANK - 1];
  plane.around.loop[MAX_RANK] = plane.around.loop[MAX_RANK - 1] = (loop_t){1, 0, 0};
  return plane;
}

/// The elements of the result, once each.
LATE plane_t kept_plane(const plane_t *reduced) {
  plane_t plane = *reduced;
  UNROLL for (dim_t i = 0; i <= MAX_RANK; i++) {
    loop_t *loop = &plane.around.loop[i];
    loop->size = loop->to == 0 ? 1 : loop->size;
  }
  plane.row.size = plane.row.to == 0 ? 1 : plane.row.size;
  plane.col.size = plane.col.to == 0 ? 1 : plane.col.size;
  return plane;
}

/// What is folded at a time: a vector, or several scalars where there are no vectors.
#define PARTS_BYTES MAX(VECTOR_BYTES, 16)

/// A reduction of elements of one type. Signed sums and products are computed with the unsigned `lane`, which may overflow;
/// `total` is the type in which the blocks of a row are put together.
#define FOLD_ROW(name, lane, total, OP, identity)                                                                              \
  enum { WIDTH_##name = PARTS_BYTES / sizeof(lane) };                                                                          \
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
  LATE lane fold_block_##name(const lane *input, dim_t length) {                                                             \
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
  /* Elements that are `step` apart: as many at a time as accumulate in one lane of a block. */                                \
  INLINE lane fold_spread_##name(const lane *input, dim_t length, dim_t step) {                                                \
    total sum = (total)(identity);                                                                                             \
    for (dim_t at = 0; at < length; at += BLOCK) {                                                                             \
      lane block = (lane)(identity);                                                                                           \
      for (dim_t i = at; i < min_dim(at + BLOCK, length); i++) block = (lane)OP(block, input[i * step]);                       \
      sum = (total)OP(sum, block);                                                                                             \
    }                                                                                                                          \
    return (lane)sum;                                                                                                          \
  }                                                                                                                            \
                                                                                                                               \
  INLINE lane fold_row_##name(const lane *input, dim_t length, dim_t step) {                                                   \
    enum { LONGEST = BLOCK * ACCUMULATORS * WIDTH_##name };                                                                    \
    if (length > 1 && step != 1) return fold_spread_##name(input, length, step);                                               \
    if (length <= LONGEST) return fold_block_##name(input, length);                                                            \
    total sum = (total)(identity);                                                                                             \
    for (dim_t at = 0; at < length; at += LONGEST) {                                                                           \
      total block = fold_block_##name(input + at, min_dim(LONGEST, length - at));                                              \
      sum = (total)OP(sum, block);                                                                                             \
    }                                                                                                                          \
    return (lane)sum;                                                                                                          \
  }

/// The same of several rows, or of any dimensions.
#define REDUCTION(name, type, lane, total, OP, identity)                                                                       \
  FOLD_ROW(name, lane, total, OP, identity)                                                                                    \
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
  /* Folds at most BLOCK rows of `cols` elements into as many elements of the result. */                                       \
  INLINE void fold_rows_##name(lane *restrict result, const lane *restrict input, dim_t rows, dim_t row_step, loop_t col) {    \
    enum { STEP = ACCUMULATORS * WIDTH_##name };                                                                               \
    dim_t c = 0, vectors_end = col.to == 1 && col.from == 1 ? col.size : 0;                                                    \
    for (; c + STEP <= vectors_end; c += STEP) fold_strip_##name(result + c, input + c, rows, row_step, ACCUMULATORS);         \
    for (; c + WIDTH_##name <= vectors_end; c += WIDTH_##name) fold_strip_##name(result + c, input + c, rows, row_step, 1);    \
    for (; c < col.size; c++) {                                                                                                \
      lane sum = (lane)(identity);                                                                                             \
      for (dim_t r = 0; r < rows; r++) sum = (lane)OP(sum, input[r * row_step + c * col.from]);                                \
      result[c * col.to] = (lane)OP(result[c * col.to], sum);                                                                  \
    }                                                                                                                          \
  }                                                                                                                            \
                                                                                                                               \
  INLINE void fill_##name(lane *restrict result, plane_t plane) {                                                              \
    dim_t planes = iterations(&plane.around);                                                                                  \
    for (dim_t i = 0; i < planes; i++) {                                                                                       \
      lane *restrict into = result + locate(&plane.around, i).to;                                                              \
      for (dim_t r = 0; r < plane.row.size; r++)                                                                               \
        for (dim_t c = 0; c < plane.col.size; c++) into[r * plane.row.to + c * plane.col.to] = (lane)(identity);               \
    }                                                                                                                          \
  }                                                                                                                            \
                                                                                                                               \
  KERNEL void libjit_reduce_##name(type *restrict result, const type *restrict input, const ints_t *result_shape,              \
                                   const ints_t *input_shape, const ints_t *result_strides, const ints_t *input_strides,       \
                                   const ints_t *axes) {                                                                       \
    lane *restrict folded = (lane *)result;                                                                                    \
    const lane *restrict elements = (const lane *)input;                                                                       \
    plane_t plane = arranged_plane(input_shape, result_strides, input_strides);                                                \
    loop_t row = plane.row, col = plane.col;                                                                                   \
    dim_t planes = iterations(&plane.around), block = row.to == 0 ? BLOCK : 1;                                                 \
    fill_##name(folded, kept_plane(&plane));                                                                                   \
    for (dim_t i = 0; i < planes; i++) {                                                                                       \
      loop_t place = locate(&plane.around, i);                                                                                 \
      lane *restrict into = folded + place.to;                                                                                 \
      const lane *restrict out_of = elements + place.from;                                                                     \
      if (col.size == 1 && col.to != 0 && row.to == 0) { /* of an open number of columns */                                    \
        into[0] = (lane)OP(into[0], fold_row_##name(out_of, row.size, row.from));                                              \
      } else if (col.to == 0) {                                                                                                \
        for (dim_t r = 0; r < row.size; r++) {                                                                                 \
          lane sum = fold_row_##name(out_of + r * row.from, col.size, col.from);                                               \
          into[r * row.to] = (lane)OP(into[r * row.to], sum);                                                                  \
        }                                                                                                                      \
      } else {                                                                                                                 \
        for (dim_t r = 0; r < row.size; r += block)                                                                            \
          fold_rows_##name(into + r * row.to, out_of + r * row.from, min_dim(block, row.size - r), row.from, col);             \
      }                                                                                                                        \
    }                                                                                                                          \
  }

/// `first` and `last` are the smallest and the largest value of the type.
#define INTEGER_REDUCTIONS(suffix, type, lane, first, last)                                                                    \
  REDUCTION(add_##suffix, type, lane, lane, ADD, 0)                                                                            \
  REDUCTION(mul_##suffix, type, lane, lane, MUL, 1)                                                                            \
  REDUCTION(max_##suffix, type, type, type, MAX, first)                                                                        \
  REDUCTION(min_##suffix, type, type, type, MIN, last)

#define FLOAT_REDUCTIONS(suffix, type)                                                                                         \
  REDUCTION(add_##suffix, type, type, double, ADD, 0)                                                                          \
  REDUCTION(mul_##suffix, type, type, double, MUL, 1)                                                                          \
  REDUCTION(max_##suffix, type, type, type, MAX_OR_NAN, -__builtin_inf())                                                      \
  REDUCTION(min_##suffix, type, type, type, MIN_OR_NAN, __builtin_inf())

FLOAT_REDUCTIONS(f32, float)
FLOAT_REDUCTIONS(f64, double)
INTEGER_REDUCTIONS(i8, int8_t, uint8_t, INT8_MIN, INT8_MAX)
INTEGER_REDUCTIONS(i16, int16_t, uint16_t, INT16_MIN, INT16_MAX)
INTEGER_REDUCTIONS(i32, int32_t, uint32_t, INT32_MIN, INT32_MAX)
INTEGER_REDUCTIONS(i64, int64_t, uint64_t, INT64_MIN, INT64_MAX)
INTEGER_REDUCTIONS(u8, uint8_t, uint8_t, 0, UINT8_MAX)
INTEGER_REDUCTIONS(u32, uint32_t, uint32_t, 0, UINT32_MAX)
INTEGER_REDUCTIONS(u64, uint64_t, uint64_t, 0, UINT64_MAX)
FOLD_ROW(max_u16, uint16_t, uint16_t, MAX, 0)
FOLD_ROW(min_u16, uint16_t, uint16_t, MIN, UINT16_MAX)

/// Neighbouring columns that are searched or summed together, in arrays of the stack that alias nothing.
#define COLUMNS 64

/// Rows that are summed side by side where there are no neighbouring columns, to hide the latency of one addition.
#define ROWS 8

/// Where the extreme element along one dimension is. `x ABOVE best` says that x is more extreme; NaN is the most extreme of all.
#define ARG_REDUCTION(name, type, ABOVE)                                                                                       \
  INLINE bool beats_##name(type x, type best, bool last) {                                                                     \
    return (x ABOVE best) | (last & (x == best)) | ((x != x) & (last | (best == best)));                                       \
  }                                                                                                                            \
                                                                                                                               \
  /* The extremes of `cols` columns of `n` elements, `step` apart, and their indices. */                                       \
  INLINE void search_columns_##name(type *restrict best, int64_t *restrict index, const type *input, dim_t n, dim_t step,      \
                                    dim_t cols, bool last) {                                                                   \
    for (dim_t c = 0; c < cols; c++) best[c] = input[c], index[c] = 0;                                                         \
    for (dim_t i = 1; i < n; i++) {                                                                                            \
      for (dim_t c = 0; c < cols; c++) {                                                                                       \
        type x = input[i * step + c];                                                                                          \
        bool higher = beats_##name(x, best[c], last);                                                                          \
        best[c] = higher ? x : best[c];                                                                                        \
        index[c] = higher ? i : index[c];                                                                                      \
      }                                                                                                                        \
    }                                                                                                                          \
  }                                                                                                                            \
                                                                                                                               \
  /* Whether one of BLOCK neighbours is the extreme. */                                                                        \
  INLINE bool any_same_##name(const type *input, type top) {                                                                   \
    bool any = false;                                                                                                          \
    for (dim_t i = 0; i < BLOCK; i++) any |= (input[i] == top) | ((top != top) & (input[i] != input[i]));                      \
    return any;                                                                                                                \
  }                                                                                                                            \
                                                                                                                               \
  /* The index of the extreme of `n` neighbours: of many, what it is, and then where. */                                                \
  INLINE int64_t search_row_##name(const type *input, dim_t n, bool last) {                                                    \
    if (n < BLOCK) {                                                                                                           \
      type top = input[0];                                                                                                     \
      int64_t place = 0;                                                                                                       \
      for (dim_t i = 1; i < n; i++) {                                                                                          \
        bool higher = beats_##name(input[i], top, last);                                                                       \
        top = higher ? input[i] : top;                                                                                         \
        place = higher ? i : place;                                                                                            \
      }                                                                                                                        \
      return place;                                                                                                            \
    }                                                                                                                          \
    type top = fold_row_##name(input, n, 1);                                                                                   \
    dim_t at = last ? n - 1 : 0, step = last ? -1 : 1;                                                                         \
    while (n - at >= BLOCK && !last && !any_same_##name(input + at, top)) at += BLOCK;                                         \
    while (at >= BLOCK && last && !any_same_##name(input + at - BLOCK + 1, top)) at -= BLOCK;                                  \
    while (input[at] != top && (top == top || input[at] == input[at])) at += step;                                             \
    return at;                                                                                                                 \
  }                                                                                                                            \
                                                                                                                               \
  INLINE void arg_columns_##name(int64_t *restrict result, const type *restrict input, dim_t n, dim_t step, dim_t cols,        \
                                 bool last) {                                                                                  \
    type best[COLUMNS];                                                                                                        \
    int64_t index[COLUMNS];                                                                                                    \
    search_columns_##name(best, index, input, n, step, cols, last);                                                            \
    for (dim_t c = 0; c < cols; c++) result[c] = index[c];                                                                     \
  }                                                                                                                            \
                                                                                                                               \
  KERNEL void libjit_arg_##name##_i64(int64_t *restrict result, const type *restrict input, const ints_t *result_shape,        \
                                      const ints_t *input_shape, dim_t axis, bool last) {                                      \
    dim_t outer = count_between(input_shape, 0, axis), n = input_shape->at[axis];                                              \
    dim_t inner = count_between(input_shape, axis + 1, input_shape->size);                                                     \
    for (dim_t o = 0; o < outer; o++) {                                                                                        \
      dim_t at = o * n * inner, to = o * inner, c = 0;                                                                         \
      if (inner == 1) {                                                                                                        \
        result[to] = search_row_##name(input + at, n, last);                                                                   \
        continue;                                                                                                              \
      }                                                                                                                        \
      for (; c + COLUMNS <= inner; c += COLUMNS)                                                                               \
        arg_columns_##name(result + to + c, input + at + c, n, inner, COLUMNS, last);                                          \
      arg_columns_##name(result + to + c, input + at + c, n, inner, inner - c, last);                                          \
    }                                                                                                                          \
  }

/// Columns whose totals run side by side: pieces of rows that are long enough to be fetched ahead, and totals that stay in the first
/// cache.
#define STRIP (LANES > 1 ? 1024 : COLUMNS)

/// Rows that a vector of columns goes through before its neighbour does, so that totals are loaded and stored less often.
#define STEPS 4

/// Running sums or products along one dimension. They are kept in `total`: rounding at every step, f32 would drift. `result` may be
/// `input`.
#define RUNNING(name, op, begin, suffix, type, total)                                                                          \
  enum { SIDE_##name##_##suffix = MAX(VECTOR_BYTES / sizeof(total), 1) };                                                      \
  typedef type part_##name##_##suffix __attribute__((ext_vector_type(SIDE_##name##_##suffix), aligned(sizeof(type)), may_alias)); \
  typedef total totals_##name##_##suffix __attribute__((ext_vector_type(SIDE_##name##_##suffix), aligned(sizeof(total))));     \
                                                                                                                               \
  /* Takes totals of neighbouring columns through `n` elements, `step` apart. */                                               \
  INLINE void cum_##name##_vector_##suffix(totals_##name##_##suffix *totals, type *result, const type *input, dim_t n,         \
                                           dim_t step, bool exclusive) {                                                       \
    totals_##name##_##suffix before = *totals;                                                                                 \
    for (dim_t i = 0; i < n; i++) {                                                                                            \
      part_##name##_##suffix x = *(const part_##name##_##suffix *)(input + i * step);                                          \
      totals_##name##_##suffix next = before op __builtin_convertvector(x, totals_##name##_##suffix);                          \
      *(part_##name##_##suffix *)(result + i * step) =                                                                         \
          __builtin_convertvector(exclusive ? before : next, part_##name##_##suffix);                                          \
      before = next;                                                                                                           \
    }                                                                                                                          \
    *totals = before;                                                                                                          \
  }                                                                                                                            \
                                                                                                                               \
  /* `cols` neighbours, with as many whole vectors among them as there are. */                                                 \
  INLINE void cum_##name##_strip_##suffix(type *result, const type *input, dim_t n, dim_t step, dim_t cols, bool exclusive) {  \
    enum { SIDE = SIDE_##name##_##suffix };                                                                                    \
    totals_##name##_##suffix totals[STRIP / SIDE];                                                                             \
    dim_t vectors = cols / SIDE;                                                                                               \
    for (dim_t v = 0; v < vectors; v++) totals[v] = (begin) - (totals_##name##_##suffix){};                                    \
    for (dim_t i = 0; i < n; i += STEPS) {                                                                                     \
      const type *from = input + i * step;                                                                                     \
      type *to = result + i * step;                                                                                            \
      for (dim_t v = 0; i + STEPS <= n && v < vectors; v++)                                                                    \
        cum_##name##_vector_##suffix(&totals[v], to + v * SIDE, from + v * SIDE, STEPS, step, exclusive);                      \
      for (dim_t v = 0; i + STEPS > n && v < vectors; v++)                                                                     \
        cum_##name##_vector_##suffix(&totals[v], to + v * SIDE, from + v * SIDE, n - i, step, exclusive);                      \
    }                                                                                                                          \
  }                                                                                                                            \
                                                                                                                               \
  /* A few columns, which are `col_step` apart. */                                                                             \
  INLINE void cum_##name##_columns_##suffix(type *result, const type *input, dim_t n, dim_t step, dim_t cols, dim_t col_step,  \
                                          bool exclusive) {                                                                    \
    type block[COLUMNS];                                                                                                       \
    total totals[COLUMNS];                                                                                                     \
    for (dim_t c = 0; c < cols; c++) totals[c] = begin;                                                                        \
    for (dim_t i = 0; i < n; i++) {                                                                                            \
      for (dim_t c = 0; c < cols; c++) block[c] = input[i * step + c * col_step];                                              \
      for (dim_t c = 0; c < cols; c++) {                                                                                       \
        total next = (total)(totals[c] op (total)block[c]);                                                                    \
        block[c] = (type)(exclusive ? totals[c] : next);                                                                       \
        totals[c] = next;                                                                                                      \
      }                                                                                                                        \
      for (dim_t c = 0; c < cols; c++) result[i * step + c * col_step] = block[c];                                             \
    }                                                                                                                          \
  }                                                                                                                            \
                                                                                                                               \
  KERNEL void libjit_cum_##name##_##suffix(type *result, const type *input, const ints_t *result_shape,                        \
                                           const ints_t *input_shape, dim_t axis, bool exclusive, bool reverse) {              \
    dim_t outer = count_between(input_shape, 0, axis), n = input_shape->at[axis];                                              \
    dim_t inner = count_between(input_shape, axis + 1, input_shape->size);                                                     \
    dim_t first = reverse && n > 0 ? (n - 1) * inner : 0, step = reverse ? -inner : inner;                                     \
    if (inner == 1) {                                                                                                          \
      dim_t o = 0;                                                                                                             \
      for (; o + ROWS <= outer; o += ROWS)                                                                                     \
        cum_##name##_columns_##suffix(result + o * n + first, input + o * n + first, n, step, ROWS, n, exclusive);             \
      cum_##name##_columns_##suffix(result + o * n + first, input + o * n + first, n, step, outer - o, n, exclusive);          \
      return;                                                                                                                  \
    }                                                                                                                          \
    dim_t whole = inner / SIDE_##name##_##suffix * SIDE_##name##_##suffix;                                                     \
    for (dim_t o = 0; o < outer; o++) {                                                                                        \
      dim_t at = o * n * inner + first;                                                                                        \
      for (dim_t c = 0; c < whole; c += STRIP)                                                                                 \
        cum_##name##_strip_##suffix(result + at + c, input + at + c, n, step, min_dim(STRIP, whole - c), exclusive);           \
      at += whole;                                                                                                             \
      cum_##name##_columns_##suffix(result + at, input + at, n, step, inner - whole, 1, exclusive);                            \
    }                                                                                                                          \
  }

/// Signed totals are computed with the unsigned `total`, which may overflow; of 32 bits at least, as C would make signed products
/// of less.
#define ALONG_ONE_DIMENSION(suffix, type, total)                                                                               \
  ARG_REDUCTION(max_##suffix, type, >)                                                                                         \
  ARG_REDUCTION(min_##suffix, type, <)                                                                                         \
  RUNNING(sum, +, 0, suffix, type, total)                                                                                      \
  RUNNING(prod, *, 1, suffix, type, total)

ALONG_ONE_DIMENSION(f32, float, double)
ALONG_ONE_DIMENSION(f64, double, double)
ALONG_ONE_DIMENSION(i8, int8_t, uint32_t)
ALONG_ONE_DIMENSION(i16, int16_t, uint32_t)
ALONG_ONE_DIMENSION(i32, int32_t, uint32_t)
ALONG_ONE_DIMENSION(i64, int64_t, uint64_t)
ALONG_ONE_DIMENSION(u8, uint8_t, uint32_t)
ALONG_ONE_DIMENSION(u16, uint16_t, uint32_t)
ALONG_ONE_DIMENSION(u32, uint32_t, uint32_t)
ALONG_ONE_DIMENSION(u64, uint64_t, uint64_t)
