/// Nested loops over two strided buffers, made as few and as long as they can be.
///
/// Moving elements and reducing dimensions differ only in the strides: a broadcast does not advance in its input, a reduction
/// does not advance in its result, a transposition advances in another order. The loops are constants at the call, and every
/// index below is one as well once the loops over MAX_RANK are unrolled: nothing of this is left in the machine code.
#ifndef LIBJIT_WALK_H
#define LIBJIT_WALK_H

#include "libjit.h"

#define MAX_RANK 8

/// A loop that runs `size` times and advances by `to` elements in the result and by `from` in the input.
typedef struct {
  dim_t size, to, from;
} loop_t;

/// Nested loops, the last one innermost. The one place more than there are dimensions is for merge_loops.
typedef struct {
  loop_t loop[MAX_RANK + 1];
} walk_t;

/// The two loops that are run as one piece, and all others in the order in which they were.
typedef struct {
  walk_t around;
  loop_t row, col;
} plane_t;

/// The dimension of `shape` that is `back` before its last one; 1 beyond the first.
INLINE dim_t dim_from_last(const ints_t *shape, dim_t back) {
  return back < shape->size ? shape->at[shape->size - 1 - back] : 1;
}

/// The stride of the same dimension; 0 beyond the first.
INLINE dim_t stride_from_last(const ints_t *strides, dim_t back) {
  return back < strides->size ? strides->at[strides->size - 1 - back] : 0;
}

/// Loops over `shape`, in two buffers with the strides `to` and `from`.
INLINE walk_t walk_over(const ints_t *shape, const ints_t *to, const ints_t *from) {
  walk_t walk = {.loop = {{1, 0, 0}}};
  UNROLL for (dim_t back = 0; back < MAX_RANK; back++)
      walk.loop[MAX_RANK - back] =
          (loop_t){dim_from_last(shape, back), stride_from_last(to, back), stride_from_last(from, back)};
  return walk;
}

INLINE loop_t choose_loop(bool first, loop_t a, loop_t b) {
  return (loop_t){first ? a.size : b.size, first ? a.to : b.to, first ? a.from : b.from};
}

/// One loop in place of two where the outer one goes on where the inner one ends, in both buffers.
INLINE walk_t merge_loops(walk_t walk) {
  const loop_t none = {1, 0, 0};
  loop_t inner = walk.loop[MAX_RANK];
  UNROLL for (dim_t i = MAX_RANK - 1; i >= 0; i--) {
    loop_t outer = walk.loop[i];
    bool goes_on = outer.to == inner.to * inner.size && outer.from == inner.from * inner.size;
    bool merged = outer.size == 1 || inner.size == 1 || goes_on;
    loop_t both = {inner.size * outer.size, inner.to, inner.from};
    both = choose_loop(inner.size == 1, outer, both);
    walk.loop[i + 1] = choose_loop(merged, none, inner);
    inner = choose_loop(merged, both, outer);
  }
  walk.loop[0] = inner;
  return walk;
}

/// Which loop is taken out of a walk: the innermost of all, or of those that are contiguous in the input.
typedef enum { ANY_LOOP, CONTIGUOUS_LOOP } choice_t;

INLINE bool is_chosen(loop_t loop, choice_t choice) {
  return loop.size != 1 && (choice == ANY_LOOP || loop.from == 1);
}

/// The innermost loop of the chosen ones, or of all if there is none such, which becomes a loop of 1.
INLINE loop_t take_loop(walk_t *walk, choice_t choice) {
  bool has_chosen = false;
  UNROLL for (dim_t i = 0; i <= MAX_RANK; i++) has_chosen |= is_chosen(walk->loop[i], choice);
  loop_t taken = {1, 0, 0};
  UNROLL for (dim_t i = MAX_RANK; i >= 0; i--) {
    loop_t loop = walk->loop[i];
    bool take = taken.size == 1 && is_chosen(loop, has_chosen ? choice : ANY_LOOP);
    taken = choose_loop(take, loop, taken);
    walk->loop[i].size = take ? 1 : loop.size;
  }
  return taken;
}

/// The innermost loop, and the next one of a kind that suits it. Unless that is ANY_LOOP, the order of the loops must not
/// matter: to move elements, the loop that is contiguous in the input where the innermost is not.
INLINE plane_t plane_of(walk_t walk, choice_t choice) {
  plane_t plane = {.around = merge_loops(walk)};
  plane.col = take_loop(&plane.around, ANY_LOOP);
  plane.row = take_loop(&plane.around, is_chosen(plane.col, choice) ? ANY_LOOP : choice);
  return plane;
}

LATE dim_t iterations(const walk_t *walk) {
  dim_t n = 1;
  UNROLL for (dim_t i = 0; i <= MAX_RANK; i++) n *= walk->loop[i].size;
  return n;
}

/// Where iteration number `at` of all loops together is: offsets in both buffers.
LATE loop_t locate(const walk_t *walk, dim_t at) {
  loop_t place = {0, 0, 0};
  UNROLL for (dim_t i = MAX_RANK; i >= 0; i--) {
    loop_t loop = walk->loop[i];
    dim_t index = loop.size > 1 ? at % loop.size : 0;
    at = loop.size > 1 ? at / loop.size : at;
    place.to += index * loop.to;
    place.from += index * loop.from;
  }
  return place;
}

#endif
