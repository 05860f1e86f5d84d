/// Indexed access.
#include "kernels_gen.h"
#include "libjit.h"
#include "walk.h"

/// Where an index leads. A negative one counts from the end. One out of range leads to the nearest place, because indices are
/// data and must not reach foreign memory.
INLINE dim_t place_of(int64_t index, dim_t extent) {
  index += index < 0 ? extent : 0;
  index = index < extent ? index : extent - 1;
  return (dim_t)(index < 0 ? 0 : index);
}

/// Slices of input along dimension `axis`, as numpy's take; of an empty dimension all slices are zero.
#define GATHER(suffix, type, index_suffix, index_type)                                                                        \
  KERNEL void libjit_gather_##suffix##_##index_suffix(type *restrict result, const type *restrict input,                      \
                                                      const index_type *restrict indices, const ints_t *result_shape,         \
                                                      const ints_t *input_shape, const ints_t *indices_shape, dim_t axis) {   \
    dim_t outer = count_between(input_shape, 0, axis), extent = input_shape->at[axis];                                        \
    dim_t inner = count_between(input_shape, axis + 1, input_shape->size), picks = count(indices_shape);                      \
    for (dim_t o = 0; o < outer; o++) {                                                                                       \
      for (dim_t i = 0; i < picks; i++) {                                                                                     \
        dim_t start = (o * extent + place_of(indices[i], extent)) * inner;                                                    \
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

/// Slices of input along dimension `axis`, each the sum of several times weights: a slice is read while it is near, and written once.
#define WEIGHTED_GATHER(suffix, type)                                                                                         \
  KERNEL void libjit_cpu_weighted_gather_##suffix(                                                                            \
      type *restrict result, const type *restrict input, const int64_t *restrict indices, const type *restrict weights,       \
      const ints_t *result_shape, const ints_t *input_shape, const ints_t *indices_shape, const ints_t *weights_shape,        \
      const ints_t *result_strides, const ints_t *input_strides, dim_t axis) {                                                \
    walk_t walk = walk_over(input_shape, result_strides, input_strides), before = walk, after = walk;                         \
    dim_t own = MAX_RANK + 1 + axis - input_shape->size;                                                                      \
    UNROLL for (dim_t i = 0; i <= MAX_RANK; i++) {                                                                            \
      before.loop[i].size = i < own ? walk.loop[i].size : 1;                                                                  \
      after.loop[i].size = i > own ? walk.loop[i].size : 1;                                                                   \
    }                                                                                                                         \
    before = merge_loops(before);                                                                                             \
    after = merge_loops(after);                                                                                               \
    loop_t row = take_loop(&after, ANY_LOOP);                                                                                 \
    dim_t outer = iterations(&before), rows = iterations(&after), picks = indices_shape->at[0], taps = indices_shape->at[1];  \
    dim_t extent = input_shape->at[axis], to_step = result_strides->at[axis], from_step = input_strides->at[axis];            \
    for (dim_t o = 0; o < outer; o++) {                                                                                       \
      loop_t image = locate(&before, o);                                                                                      \
      for (dim_t i = 0; i < picks; i++) {                                                                                     \
        for (dim_t r = 0; r < rows; r++) {                                                                                    \
          loop_t place = locate(&after, r);                                                                                   \
          type *to = result + image.to + i * to_step + place.to;                                                              \
          const type *from = input + image.from + place.from;                                                                 \
          for (dim_t k = 0; k < row.size; k++) {                                                                              \
            type sum = 0;                                                                                                     \
            for (dim_t t = 0; t < taps; t++) {                                                                                \
              type x = from[place_of(indices[i * taps + t], extent) * from_step + k * row.from];                              \
              type term = x * weights[i * taps + t];                                                                          \
              sum = t ? sum + term : term;                                                                                    \
            }                                                                                                                 \
            to[k * row.to] = sum;                                                                                             \
          }                                                                                                                   \
        }                                                                                                                     \
      }                                                                                                                       \
    }                                                                                                                         \
  }

WEIGHTED_GATHER(f32, float)
WEIGHTED_GATHER(f64, double)

#define GATHERS(suffix, type)        \
  GATHER(suffix, type, i32, int32_t) \
  GATHER(suffix, type, i64, int64_t) \
  DYNAMIC_SLICE(suffix, type)

GATHERS(x8, uint8_t)
GATHERS(x16, uint16_t)
GATHERS(x32, uint32_t)
GATHERS(x64, uint64_t)

/// A matrix whose rows at some indices are changed by updates, one after the other.
#define SCATTER(name, suffix, type, changed)                                                                                   \
  KERNEL void libjit_##name##_##suffix(type *restrict result, const type *restrict input, const int64_t *restrict indices,     \
                                       const type *restrict updates, const ints_t *result_shape, const ints_t *input_shape,    \
                                       const ints_t *indices_shape, const ints_t *updates_shape) {                             \
    dim_t extent = input_shape->at[0], width = input_shape->at[1], picks = indices_shape->at[0];                               \
    for (dim_t i = 0; i < extent * width; i++) result[i] = input[i];                                                           \
    if (extent == 0) return;                                                                                                   \
    for (dim_t i = 0; i < picks; i++) {                                                                                        \
      type *row = result + place_of(indices[i], extent) * width;                                                               \
      for (dim_t k = 0; k < width; k++) {                                                                                      \
        type old = row[k], update = updates[i * width + k];                                                                    \
        row[k] = changed;                                                                                                      \
      }                                                                                                                        \
    }                                                                                                                          \
  }

/// Signed numbers are computed with as the unsigned `wide`, which may overflow. NaN is larger and smaller than all others.
#define SCATTERS(suffix, type, wide)                                                                                           \
  SCATTER(scatter_add, suffix, type, (type)((wide)old + (wide)update))                                                         \
  SCATTER(scatter_mul, suffix, type, (type)((wide)old * (wide)update))                                                         \
  SCATTER(scatter_max, suffix, type, old > update || old != old ? old : update)                                                \
  SCATTER(scatter_min, suffix, type, old < update || old != old ? old : update)

SCATTER(scatter, x8, uint8_t, ((void)old, update))
SCATTER(scatter, x16, uint16_t, ((void)old, update))
SCATTER(scatter, x32, uint32_t, ((void)old, update))
SCATTER(scatter, x64, uint64_t, ((void)old, update))

SCATTERS(f32, float, float)
SCATTERS(f64, double, double)
SCATTERS(i8, int8_t, uint32_t)
SCATTERS(i16, int16_t, uint32_t)
SCATTERS(i32, int32_t, uint32_t)
SCATTERS(i64, int64_t, uint64_t)
SCATTERS(u8, uint8_t, uint32_t)
SCATTERS(u16, uint16_t, uint32_t)
SCATTERS(u32, uint32_t, uint32_t)
SCATTERS(u64, uint64_t, uint64_t)
