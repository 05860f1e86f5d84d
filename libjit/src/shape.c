/// Kernels that only move elements, by the width of the element.
///
/// Each describes its loops (walk.h); copy_plane runs them. A plane, which is two of the loops, is either a matrix to transpose
/// or rows; LLVM makes vector loops, fills and strided loads of the latter.
#include "kernels_gen.h"
#include "libjit.h"
#include "walk.h"

/// Bytes that a transposition moves together at least: shorter pieces would load, or store, a cache line twice.
#define LINE_BYTES 64

LATE plane_t transposed_plane(const ints_t *result_shape, const ints_t *result_strides, const ints_t *input_strides,
                              const ints_t *shuffle) {
  walk_t walk = walk_over(result_shape, result_strides, input_strides);
  UNROLL for (dim_t back = 0; back < MAX_RANK; back++) {
    dim_t own = shuffle->size - 1 - back, step = 0;
    dim_t source = own >= 0 ? shuffle->size - 1 - shuffle->at[own] : back;
    UNROLL for (dim_t k = 0; k < MAX_RANK; k++) step = k == source ? stride_from_last(input_strides, k) : step;
    walk.loop[MAX_RANK - back].from = step;
  }
  return plane_of(walk, CONTIGUOUS_LOOP);
}

/// The input does not advance where it is broadcast.
LATE plane_t broadcast_plane(const ints_t *result_shape, const ints_t *input_shape, const ints_t *result_strides,
                             const ints_t *input_strides) {
  walk_t walk = walk_over(result_shape, result_strides, input_strides);
  UNROLL for (dim_t back = 0; back < MAX_RANK; back++) {
    loop_t *loop = &walk.loop[MAX_RANK - back];
    loop->from = dim_from_last(input_shape, back) == 1 ? 0 : loop->from;
  }
  return plane_of(walk, CONTIGUOUS_LOOP);
}

LATE plane_t inserted_plane(const ints_t *input_shape, const ints_t *result_strides, const ints_t *input_strides) {
  return plane_of(walk_over(input_shape, result_strides, input_strides), CONTIGUOUS_LOOP);
}

/// Steps count elements of the input.
LATE plane_t extracted_plane(const ints_t *result_shape, const ints_t *result_strides, const ints_t *input_strides,
                           const ints_t *steps) {
  walk_t walk = walk_over(result_shape, result_strides, input_strides);
  UNROLL for (dim_t back = 0; back < MAX_RANK; back++) walk.loop[MAX_RANK - back].from *= dim_from_last(steps, back);
  return plane_of(walk, CONTIGUOUS_LOOP);
}

/// Offset of an element of a buffer.
INLINE dim_t offset_of(const ints_t *strides, const ints_t *position) {
  dim_t offset = 0;
  UNROLL for (dim_t i = 0; i < strides->size; i++) offset += position->at[i] * strides->at[i];
  return offset;
}

/// A square of SIDE x SIDE elements is transposed in registers: in log2(SIDE) rounds, each of which interleaves the first half of
/// the rows with the second. The last squares of a plane, which has one at least, overlap the ones before.
///
/// The buffer whose lines lie farther apart is walked along its lines, and SIDE of its lines at a time become whole: distances are
/// often powers of two, so that all of them meet in one set of the cache.
#define SQUARES(suffix, type, SIDE)                                                                                            \
  typedef type row_##suffix##_##SIDE __attribute__((ext_vector_type(SIDE), aligned(sizeof(type)), may_alias));                 \
                                                                                                                               \
  INLINE void transpose_square_##suffix##_##SIDE(type *restrict result, const type *restrict input, dim_t to_row,              \
                                                 dim_t from_col) {                                                             \
    row_##suffix##_##SIDE rows[SIDE], mixed[SIDE];                                                                             \
    UNROLL for (int i = 0; i < SIDE; i++) rows[i] = *(const row_##suffix##_##SIDE *)(input + i * from_col);                    \
    UNROLL for (int round = 1; round < SIDE; round *= 2) {                                                                     \
      UNROLL for (int i = 0; i < SIDE / 2; i++) {                                                                              \
        mixed[2 * i] = LOW_HALVES_##SIDE(rows[i], rows[i + SIDE / 2]);                                                         \
        mixed[2 * i + 1] = HIGH_HALVES_##SIDE(rows[i], rows[i + SIDE / 2]);                                                    \
      }                                                                                                                        \
      UNROLL for (int i = 0; i < SIDE; i++) rows[i] = mixed[i];                                                                \
    }                                                                                                                          \
    UNROLL for (int i = 0; i < SIDE; i++) *(row_##suffix##_##SIDE *)(result + i * to_row) = rows[i];                           \
  }                                                                                                                            \
                                                                                                                               \
  INLINE void transpose_squares_##suffix##_##SIDE(type *restrict result, const type *restrict input, dim_t rows, dim_t cols,   \
                                                  dim_t to_row, dim_t from_col) {                                              \
    enum { PIECE = LINE_BYTES / sizeof(type) > SIDE ? LINE_BYTES / sizeof(type) : SIDE };                                      \
    bool across = from_col > to_row;                                                                                           \
    dim_t far = across ? cols : rows, near = across ? rows : cols;                                                             \
    for (dim_t far0 = 0; far0 < far; far0 += PIECE)                                                                            \
      for (dim_t near0 = 0; near0 < near; near0 += PIECE)                                                                      \
        for (dim_t i = far0; i < min_dim(far0 + PIECE, far); i += SIDE)                                                        \
          for (dim_t k = near0; k < min_dim(near0 + PIECE, near); k += SIDE) {                                                 \
            dim_t line = min_dim(i, far - SIDE), at = min_dim(k, near - SIDE);                                                 \
            dim_t r = across ? at : line, c = across ? line : at;                                                              \
            transpose_square_##suffix##_##SIDE(result + r * to_row + c, input + r + c * from_col, to_row, from_col);           \
          }                                                                                                                    \
  }

/// Everything for elements of one type. Squares have WIDE or else SIDE elements in a row.
#define MOVES(suffix, type, SIDE, WIDE)                                                                                        \
  /* result[r * to_row + c] = input[r + c * from_col] */                                                                       \
  INLINE void transpose_plane_##suffix(type *restrict result, const type *restrict input, dim_t rows, dim_t cols,              \
                                       dim_t to_row, dim_t from_col) {                                                         \
    if (rows >= WIDE && cols >= WIDE)                                                                                          \
      transpose_squares_##suffix##_##WIDE(result, input, rows, cols, to_row, from_col);                                        \
    else if (rows >= SIDE && cols >= SIDE)                                                                                     \
      transpose_squares_##suffix##_##SIDE(result, input, rows, cols, to_row, from_col);                                        \
    else if (rows < cols)                                                                                                      \
      for (dim_t c = 0; c < cols; c++)                                                                                         \
        for (dim_t r = 0; r < rows; r++) result[r * to_row + c] = input[r + c * from_col];                                     \
    else                                                                                                                       \
      for (dim_t r = 0; r < rows; r++)                                                                                         \
        for (dim_t c = 0; c < cols; c++) result[r * to_row + c] = input[r + c * from_col];                                     \
  }                                                                                                                            \
                                                                                                                               \
  INLINE void copy_plane_##suffix(type *restrict result, const type *restrict input, plane_t plane) {                          \
    loop_t row = plane.row, col = plane.col;                                                                                   \
    bool transposed = !libjit_small && row.size > 1 && col.to == 1 && row.from == 1 && col.from != 0;                          \
    dim_t planes = iterations(&plane.around);                                                                                  \
    for (dim_t i = 0; i < planes; i++) {                                                                                       \
      loop_t place = locate(&plane.around, i);                                                                                 \
      type *restrict into = result + place.to;                                                                                 \
      const type *restrict out_of = input + place.from;                                                                        \
      if (transposed)                                                                                                          \
        transpose_plane_##suffix(into, out_of, row.size, col.size, row.to, col.from);                                          \
      else                                                                                                                     \
        for (dim_t r = 0; r < row.size; r++)                                                                                   \
          for (dim_t c = 0; c < col.size; c++)                                                                                 \
            into[r * row.to + c * col.to] = out_of[r * row.from + c * col.from];                                               \
    }                                                                                                                          \
  }                                                                                                                            \
                                                                                                                               \
  /** Dimension i of the result is dimension shuffle[i] of the input. */                                                       \
  KERNEL void libjit_transpose_##suffix(type *restrict result, const type *restrict input, const ints_t *result_shape,         \
                                        const ints_t *input_shape, const ints_t *result_strides,                               \
                                        const ints_t *input_strides, const ints_t *shuffle) {                                  \
    copy_plane_##suffix(result, input, transposed_plane(result_shape, result_strides, input_strides, shuffle));                \
  }                                                                                                                            \
                                                                                                                               \
  KERNEL void libjit_broadcast_##suffix(type *restrict result, const type *restrict input, const ints_t *result_shape,         \
                                        const ints_t *input_shape, const ints_t *result_strides,                               \
                                        const ints_t *input_strides) {                                                         \
    copy_plane_##suffix(result, input, broadcast_plane(result_shape, input_shape, result_strides, input_strides));             \
  }                                                                                                                            \
                                                                                                                               \
  KERNEL void libjit_insert_tensor_##suffix(type *restrict result, const type *restrict input, const ints_t *result_shape,     \
                                            const ints_t *input_shape, const ints_t *result_strides,                           \
                                            const ints_t *input_strides, const ints_t *offsets) {                              \
    dim_t start = offset_of(result_strides, offsets);                                                                          \
    copy_plane_##suffix(result + start, input, inserted_plane(input_shape, result_strides, input_strides));                    \
  }                                                                                                                            \
                                                                                                                               \
  /** A negative step walks backwards from its offset. */                                                                      \
  KERNEL void libjit_extract_tensor_##suffix(type *restrict result, const type *restrict input, const ints_t *result_shape,    \
                                             const ints_t *input_shape, const ints_t *result_strides,                          \
                                             const ints_t *input_strides, const ints_t *offsets, const ints_t *steps) {        \
    dim_t start = offset_of(input_strides, offsets);                                                                           \
    copy_plane_##suffix(result, input + start, extracted_plane(result_shape, result_strides, input_strides, steps));           \
  }                                                                                                                            \
                                                                                                                               \
  KERNEL void libjit_bit_cast_##suffix(type *restrict result, const type *restrict input, const ints_t *result_shape,          \
                                       const ints_t *input_shape) {                                                            \
    for (dim_t i = 0, n = count(input_shape); i < n; i++) result[i] = input[i];                                                \
  }

#define LOW_HALVES_4(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define HIGH_HALVES_4(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define LOW_HALVES_8(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH_HALVES_8(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define LOW_HALVES_16(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH_HALVES_16(a, b) __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)

SQUARES(x8, uint8_t, 16)
SQUARES(x16, uint16_t, 8)
SQUARES(x32, uint32_t, 8)
SQUARES(x64, uint64_t, 4)

MOVES(x8, uint8_t, 16, 16)
MOVES(x16, uint16_t, 8, 8)
#if VECTOR_BYTES == 64
SQUARES(x32, uint32_t, 16)
SQUARES(x64, uint64_t, 8)
MOVES(x32, uint32_t, 8, 16)
MOVES(x64, uint64_t, 4, 8)
#else
MOVES(x32, uint32_t, 8, 8)
MOVES(x64, uint64_t, 4, 4)
#endif
