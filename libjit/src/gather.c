/// Indexed access.
#include "kernels_gen.h"
#include "libjit.h"

/// Slices of input along dimension `axis`, as numpy's take. A negative index counts from the end. An index out of range takes
/// the nearest slice, because indices are data and must not reach foreign memory; of an empty dimension all slices are zero.
#define GATHER(suffix, type, index_suffix, index_type)                                                                        \
  KERNEL void libjit_gather_##suffix##_##index_suffix(type *restrict result, const type *restrict input,                      \
                                                      const index_type *restrict indices, const ints_t *result_shape,         \
                                                      const ints_t *input_shape, const ints_t *indices_shape, dim_t axis) {   \
    dim_t outer = count_between(input_shape, 0, axis), extent = input_shape->at[axis];                                        \
    dim_t inner = count_between(input_shape, axis + 1, input_shape->size), picks = count(indices_shape);                      \
    for (dim_t o = 0; o < outer; o++) {                                                                                       \
      for (dim_t i = 0; i < picks; i++) {                                                                                     \
        int64_t index = indices[i];                                                                                           \
        index += index < 0 ? extent : 0;                                                                                      \
        index = index < extent ? index : extent - 1;                                                                          \
        dim_t start = (o * extent + (dim_t)(index < 0 ? 0 : index)) * inner;                                                  \
        for (dim_t k = 0; k < inner; k++) result[(o * picks + i) * inner + k] = extent > 0 ? input[start + k] : 0;            \
      }                                                                                                                       \
    }                                                                                                                         \
  }

/// Slices of input along dimension `axis`, `step` apart, from a computed one on, which is clamped into the range, and so are all
/// others. Neighbours are one piece.
#define DYNAMIC_SLICE(suffix, type)                                                                                           \
  KERNEL void libjit_dynamic_slice_##suffix(type *restrict result, const type *restrict input, const int64_t *restrict start, \
                                            const ints_t *result_shape, const ints_t *input_shape, const ints_t *start_shape, \
                                            dim_t axis, dim_t step) {                                                         \
    dim_t outer = count_between(input_shape, 0, axis), extent = input_shape->at[axis], picks = result_shape->at[axis];        \
    dim_t inner = count_between(input_shape, axis + 1, input_shape->size);                                                    \
    dim_t first = (dim_t)(*start < 0 ? 0 : *start < extent ? *start : extent - 1);                                            \
    bool whole = step == 1 && extent > 0 && picks <= extent - first;                                                          \
    for (dim_t o = 0; o < outer; o++) {                                                                                       \
      type *to = result + o * picks * inner;                                                                                  \
      const type *from = input + o * extent * inner;                                                                          \
      if (whole) {                                                                                                            \
        for (dim_t k = 0; k < picks * inner; k++) to[k] = from[first * inner + k];                                            \
        continue;                                                                                                             \
      }                                                                                                                       \
      for (dim_t i = 0; i < picks; i++) {                                                                                     \
        dim_t index = first + i * step;                                                                                       \
        index = index < 0 ? 0 : index < extent ? index : extent - 1;                                                          \
        for (dim_t k = 0; k < inner; k++) to[i * inner + k] = extent > 0 ? from[index * inner + k] : 0;                       \
      }                                                                                                                       \
    }                                                                                                                         \
  }

#define GATHERS(suffix, type)        \
  GATHER(suffix, type, i32, int32_t) \
  GATHER(suffix, type, i64, int64_t) \
  DYNAMIC_SLICE(suffix, type)

GATHERS(x8, uint8_t)
GATHERS(x16, uint16_t)
GATHERS(x32, uint32_t)
GATHERS(x64, uint64_t)
