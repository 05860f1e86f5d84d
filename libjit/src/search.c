/// Finding elements: how many there are depends on what they are.
#include "kernels_gen.h"
#include "libjit.h"
#include "sort.h"

/// So many elements are looked at together; where all of them are zero, that is all.
enum { BLOCK = 64 };
/// So many are compared together with the last that is chosen so far, and so many are kept in order.
enum { FEW = 16 };

/// Lines along a dimension that are searched at once where their elements are neighbours.
enum { BESIDE = 16 };

/// The index of element `at` in every dimension.
INLINE void write_place(int64_t *restrict place, dim_t at, const ints_t *shape) {
  for (dim_t axis = shape->size - 1; axis >= 0; axis--) {
    place[axis] = at % shape->at[axis];
    at /= shape->at[axis];
  }
}

#define NON_ZERO(suffix, type)                                                                                                 \
  INLINE bool any_##suffix(const type *restrict input, dim_t n) {                                                              \
    bool any = false;                                                                                                          \
    for (dim_t i = 0; i < n; i++) any |= input[i] != 0;                                                                        \
    return any;                                                                                                                \
  }                                                                                                                            \
                                                                                                                               \
  KERNEL void libjit_non_zero_##suffix(int64_t *restrict result, int64_t *restrict count_of, const type *restrict input,       \
                                       const ints_t *result_shape, const ints_t *count_shape, const ints_t *input_shape) {     \
    dim_t n = count(input_shape), rank = input_shape->size, found = 0;                                                         \
    for (dim_t at = 0; at < n; at += BLOCK) {                                                                                  \
      dim_t size = min_dim(BLOCK, n - at), places[BLOCK], here = 0;                                                            \
      if (size == BLOCK ? !any_##suffix(input + at, BLOCK) : !any_##suffix(input + at, size)) continue;                        \
      for (dim_t i = 0; i < size; i++) {                                                                                       \
        places[here] = at + i;                                                                                                 \
        here += input[at + i] != 0;                                                                                            \
      }                                                                                                                        \
      for (dim_t i = 0; i < here; i++) write_place(result + (found + i) * rank, places[i], input_shape);                       \
      found += here;                                                                                                           \
    }                                                                                                                          \
    *count_of = found;                                                                                                         \
  }

/// Rows in ascending order, equal ones as they come; then groups of equal rows. Each column sorts among themselves the rows that
/// all columns before it leave equal: `counts` marks where such a run begins, until it has the counts.
/// In the order of their rows, groups that have a new number n are marked by -1 - n.
#define UNIQUE(suffix, type)                                                                                                   \
  INLINE void sort_column_##suffix(order_t order, order_t spare, int64_t *restrict begins, const type *input, dim_t n,         \
                                   dim_t width) {                                                                              \
    for (dim_t start = 0, end; start < n; start = end) {                                                                       \
      for (end = start + 1; end < n && !begins[end];) end++;                                                                   \
      if (end == start + 1) continue;                                                                                          \
      for (dim_t i = start; i < end; i++) order.keys[i] = key_##suffix(input[order.places[i] * width]);                        \
      sort_keys(order_from(order, start), order_from(spare, start), end - start, sizeof(type));                                \
      for (dim_t i = start + 1; i < end; i++) begins[i] = order.keys[i] != order.keys[i - 1];                                  \
    }                                                                                                                          \
  }                                                                                                                            \
                                                                                                                               \
  KERNEL void libjit_unique_##suffix(int64_t *restrict result, int64_t *restrict inverse, int64_t *restrict counts,            \
                                     int64_t *restrict count_of, const type *restrict input, int64_t *restrict memory,         \
                                     const ints_t *result_shape, const ints_t *inverse_shape, const ints_t *counts_shape,      \
                                     const ints_t *count_shape, const ints_t *input_shape, const ints_t *memory_shape,         \
                                     bool sorted) {                                                                            \
    dim_t n = input_shape->at[0], width = input_shape->at[1], groups = 0;                                                      \
    order_t order = order_in(memory, n, 0), spare = order_in(memory, n, 1);                                                    \
    for (dim_t i = 0; i < n; i++) order.places[i] = i;                                                                         \
    for (dim_t i = 0; i < n; i++) counts[i] = i == 0;                                                                          \
    for (dim_t column = 0; column < width; column++) sort_column_##suffix(order, spare, counts, input + column, n, width);     \
    for (dim_t i = 0; i < n; i++) {                                                                                            \
      dim_t row = (dim_t)order.places[i];                                                                                      \
      if (counts[i]) {                                                                                                         \
        result[groups] = row;                                                                                                  \
        counts[groups++] = 0;                                                                                                  \
      }                                                                                                                        \
      counts[groups - 1]++;                                                                                                    \
      inverse[row] = groups - 1;                                                                                               \
    }                                                                                                                          \
    *count_of = groups;                                                                                                        \
    if (sorted) return;                                                                                                        \
    int64_t *number = memory, *size = memory + n;                                                                              \
    dim_t next = 0;                                                                                                            \
    for (dim_t i = 0; i < groups; i++) size[i] = counts[i];                                                                    \
    for (dim_t i = 0; i < groups; i++) number[i] = result[i];                                                                  \
    for (dim_t row = 0; row < n; row++) {                                                                                      \
      dim_t group = inverse[row];                                                                                              \
      if (number[group] == row) {                                                                                              \
        result[next] = row;                                                                                                    \
        counts[next] = size[group];                                                                                            \
        number[group] = -1 - next++;                                                                                           \
      }                                                                                                                        \
      inverse[row] = -1 - number[group];                                                                                       \
    }                                                                                                                          \
  }

#define SEARCHES(suffix, type)                                                                                                 \
  NON_ZERO(suffix, type)                                                                                                       \
  UNIQUE(suffix, type)

SEARCHES(f32, float)
SEARCHES(f64, double)
SEARCHES(i8, int8_t)
SEARCHES(i16, int16_t)
SEARCHES(i32, int32_t)
SEARCHES(i64, int64_t)
SEARCHES(u8, uint8_t)
SEARCHES(u16, uint16_t)
SEARCHES(u32, uint32_t)
SEARCHES(u64, uint64_t)
SEARCHES(b, bool)

/// The first `k` places along one dimension, the most extreme first. Few are kept in order all the time. Of many, places are
/// collected that may be among them; when there is no more room, they are sorted, and the first `k` stay. Either way, whatever
/// does not come before the last of `k` is passed over.
#define TOP_K(suffix, type, key_t)                                                                                             \
  INLINE key_t rank_##suffix(type x, bool largest) {                                                                           \
    key_t key = key_##suffix(x);                                                                                               \
    return largest ? (key_t)~key : key;                                                                                        \
  }                                                                                                                            \
                                                                                                                               \
  /* Whether one of FEW neighbours may come before another element: NaN may. */                                                \
  INLINE bool any_before_##suffix(const type *input, type other, bool largest) {                                               \
    bool any = false;                                                                                                          \
    for (dim_t i = 0; i < FEW; i++) any |= largest ? !(input[i] <= other) : !(input[i] >= other);                              \
    return any;                                                                                                                \
  }                                                                                                                            \
                                                                                                                               \
  INLINE void choose_##suffix(order_t order, order_t spare, dim_t room, const type *line, dim_t n, dim_t step, dim_t k,        \
                              bool largest) {                                                                                  \
    dim_t size = 0;                                                                                                            \
    key_t last = 0;                                                                                                            \
    bool full = false;                                                                                                         \
    for (dim_t at = 0; at < n; at += FEW) {                                                                                    \
      dim_t end = min_dim(at + FEW, n);                                                                                        \
      if (full && step == 1 && end == at + FEW && !any_before_##suffix(line + at, line[order.places[k - 1]], largest)) continue;\
      for (dim_t i = at; i < end; i++) {                                                                                       \
        key_t key = rank_##suffix(line[i * step], largest);                                                                    \
        if (k <= FEW) {                                                                                                        \
          if (full && key >= last) continue;                                                                                   \
          insert_key(order, full ? k - 1 : size++, key, i);                                                                    \
          full = size == k;                                                                                                    \
          last = (key_t)order.keys[k - 1];                                                                                     \
          continue;                                                                                                            \
        }                                                                                                                      \
        if (size == room) {                                                                                                    \
          sort_keys(order, spare, size, sizeof(type));                                                                         \
          size = k;                                                                                                            \
          last = (key_t)order.keys[k - 1];                                                                                     \
          full = true;                                                                                                         \
        }                                                                                                                      \
        order.keys[size] = key;                                                                                                \
        order.places[size] = i;                                                                                                \
        size += !full || key < last;                                                                                           \
      }                                                                                                                        \
    }                                                                                                                          \
    if (k > FEW) sort_keys(order, spare, size, sizeof(type));                                                                  \
  }                                                                                                                            \
                                                                                                                               \
  /* The same of BESIDE lines whose elements are neighbours: rows are read as they lie, and passed over together. */          \
  INLINE void choose_beside_##suffix(uint64_t (*keys)[FEW], int64_t (*places)[FEW], const type *lines, dim_t n, dim_t step,   \
                                     dim_t k, bool largest) {                                                                 \
    type limits[BESIDE] = {0};                                                                                                \
    for (dim_t at = 0; at < n; at++) {                                                                                        \
      const type *row = lines + at * step;                                                                                    \
      bool any = at < k;                                                                                                      \
      for (dim_t c = 0; c < BESIDE; c++) any |= largest ? !(row[c] <= limits[c]) : !(row[c] >= limits[c]);                    \
      if (!any) continue;                                                                                                     \
      for (dim_t c = 0; c < BESIDE; c++) {                                                                                    \
        uint64_t key = rank_##suffix(row[c], largest);                                                                        \
        if (at >= k && key >= keys[c][k - 1]) continue;                                                                       \
        insert_key((order_t){keys[c], places[c]}, min_dim(at, k - 1), key, at);                                               \
        if (at >= k - 1) limits[c] = lines[places[c][k - 1] * step + c];                                                      \
      }                                                                                                                       \
    }                                                                                                                         \
  }                                                                                                                           \
                                                                                                                              \
  KERNEL void libjit_top_k_##suffix(type *restrict result, int64_t *restrict indices, const type *restrict input,             \
                                    int64_t *restrict memory, const ints_t *result_shape, const ints_t *indices_shape,        \
                                    const ints_t *input_shape, const ints_t *memory_shape, dim_t axis, dim_t k, bool largest) {\
    dim_t outer = count_between(input_shape, 0, axis), n = input_shape->at[axis], room = memory_shape->at[1];                 \
    dim_t inner = count_between(input_shape, axis + 1, input_shape->size), lines = k > 0 ? outer * inner : 0;                 \
    order_t order = order_in(memory, room, 0), spare = order_in(memory, room, 1);                                             \
    for (dim_t line = 0; line < lines; line++) {                                                                              \
      dim_t c = line % inner, from = line / inner * n * inner + c, to = line / inner * k * inner + c;                         \
      if (LANES > 1 && k <= FEW && c + BESIDE <= inner) {                                                                     \
        uint64_t keys[BESIDE][FEW];                                                                                           \
        int64_t places[BESIDE][FEW];                                                                                          \
        choose_beside_##suffix(keys, places, input + from, n, inner, k, largest);                                             \
        for (dim_t i = 0; i < k; i++)                                                                                         \
          for (dim_t l = 0; l < BESIDE; l++) {                                                                                \
            result[to + i * inner + l] = input[from + places[l][i] * inner + l];                                              \
            indices[to + i * inner + l] = places[l][i];                                                                       \
          }                                                                                                                   \
        line += BESIDE - 1;                                                                                                   \
        continue;                                                                                                             \
      }                                                                                                                       \
      choose_##suffix(order, spare, room, input + from, n, inner, k, largest);                                                \
      for (dim_t i = 0; i < k; i++) {                                                                                         \
        result[to + i * inner] = input[from + (dim_t)order.places[i] * inner];                                                \
        indices[to + i * inner] = order.places[i];                                                                            \
      }                                                                                                                       \
    }                                                                                                                         \
  }

TOP_K(f32, float, uint32_t)
TOP_K(f64, double, uint64_t)
TOP_K(i8, int8_t, uint8_t)
TOP_K(i16, int16_t, uint16_t)
TOP_K(i32, int32_t, uint32_t)
TOP_K(i64, int64_t, uint64_t)
TOP_K(u8, uint8_t, uint8_t)
TOP_K(u16, uint16_t, uint16_t)
TOP_K(u32, uint32_t, uint32_t)
TOP_K(u64, uint64_t, uint64_t)

/// So many boxes are compared with one at a time.
enum { KEPT = 16 };

/// So many scores tell which are high.
enum { SAMPLE = 32 };

/// The ends of both sides of a box, and its area.
typedef struct {
  float low[2], high[2], area;
} box_t;

INLINE box_t box_of(const float *box, bool centers) {
  box_t b;
  for (int side = 0; side < 2; side++) {
    float one = centers ? box[side] - box[side + 2] / 2 : box[side];
    float other = centers ? box[side] + box[side + 2] / 2 : box[side + 2];
    b.low[side] = one < other || centers ? one : other;
    b.high[side] = one < other || centers ? other : one;
  }
  b.area = (b.high[0] - b.low[0]) * (b.high[1] - b.low[1]);
  return b;
}

/// Whether a box shares more than `overlap` of the union with one of a block. The area of what is no box is 0. Products are
/// rounded before they are added, so that what is exactly as much as `overlap` is not more.
INLINE bool overlaps(const float *restrict block, box_t b, float overlap) {
#pragma clang fp contract(off)
  int hits = 0;
  for (int k = 0; k < KEPT; k++) {
    float low0 = block[k] > b.low[0] ? block[k] : b.low[0];
    float low1 = block[KEPT + k] > b.low[1] ? block[KEPT + k] : b.low[1];
    float high0 = block[2 * KEPT + k] < b.high[0] ? block[2 * KEPT + k] : b.high[0];
    float high1 = block[3 * KEPT + k] < b.high[1] ? block[3 * KEPT + k] : b.high[1];
    float side0 = high0 > low0 ? high0 - low0 : 0, side1 = high1 > low1 ? high1 - low1 : 0;
    float area = block[4 * KEPT + k], common = side0 * side1, both = b.area + area - common;
    float share = ((area > 0) & (both > 0)) ? common / both : 0;
    hits |= share > overlap;
  }
  return hits && b.area > 0;
}

/// The boxes with scores that are not too low, and how many they are.
INLINE dim_t candidates(int64_t *restrict order, const float *restrict scores, dim_t n, float threshold) {
  dim_t left = 0;
  for (dim_t at = 0; at < n; at += BLOCK) {
    dim_t size = min_dim(BLOCK, n - at);
    bool any = false;
    if (size == BLOCK) {
      for (dim_t i = 0; i < BLOCK; i++) any |= !(scores[at + i] <= threshold);
      if (!any) continue;
    }
    for (dim_t i = at; i < at + size; i++) {
      order[left] = i;
      left += !(scores[i] <= threshold);
    }
  }
  return left;
}

/// Whether a candidate is to be looked at before another.
INLINE bool is_before(const float *scores, int64_t a, int64_t b) {
  return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
}

/// Restores the heap of candidates below `at`.
INLINE void sift(int64_t *heap, dim_t n, dim_t at, const float *scores) {
  int64_t moved = heap[at];
  for (dim_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
    child += child + 1 < n && is_before(scores, heap[child + 1], heap[child]);
    if (!is_before(scores, heap[child], moved)) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = moved;
}

/// Moves the best of many candidates to the front, those above the second of a sample, and makes a heap of them: how many these
/// are. Few are looked at as a rule, and to restore a heap of all takes longer than to choose.
INLINE dim_t best_of(int64_t *order, dim_t left, const float *scores) {
  dim_t size = left;
  if (left >= 4 * SAMPLE) {
    float first = -__builtin_inff(), second = first;
    for (dim_t i = 0; i < SAMPLE; i++) {
      float score = scores[order[i * (left / SAMPLE)]];
      second = score > first ? first : score > second ? score : second;
      first = score > first ? score : first;
    }
    size = 0;
    for (dim_t i = 0; i < left; i++) {
      int64_t candidate = order[i];
      order[i] = order[size];
      order[size] = candidate;
      size += !(scores[candidate] <= second);
    }
    size = size > 0 ? size : left;
  }
  for (dim_t at = size / 2 - 1; at >= 0; at--) sift(order, size, at, scores);
  return size;
}

/// Candidates leave a heap one by one, so that only those that are looked at are sorted (Floyd 1964).
KERNEL void libjit_non_max_suppression_f32(int64_t *restrict result, int64_t *restrict count_of, const float *restrict boxes,
                                           const float *restrict scores, const int64_t *restrict limit,
                                           const float *restrict overlap, const float *restrict threshold,
                                           int64_t *restrict order, float *restrict kept, const ints_t *result_shape,
                                           const ints_t *count_shape, const ints_t *boxes_shape, const ints_t *scores_shape,
                                           const ints_t *limit_shape, const ints_t *overlap_shape,
                                           const ints_t *threshold_shape, const ints_t *order_shape, const ints_t *kept_shape,
                                           bool centers, dim_t room) {
  dim_t images = scores_shape->at[0], classes = scores_shape->at[1], n = scores_shape->at[2], found = 0;
  for (dim_t image = 0; image < images; image++) {
    for (dim_t name = 0; name < classes; name++) {
      const float *own = scores + (image * classes + name) * n;
      dim_t left = candidates(order, own, n, *threshold), chosen = 0, size = 0;
      for (int64_t *heap = order, *rest = order; left > 0 && chosen < *limit && found < room; left--) {
        if (size == 0) {
          heap = rest;
          size = best_of(heap, left, own);
          rest += size;
        }
        dim_t candidate = heap[0];
        heap[0] = heap[--size];
        if (size > 0) sift(heap, size, 0, own);
        box_t b = box_of(boxes + (image * n + candidate) * 4, centers);
        bool hit = false;
        for (dim_t at = 0; at < chosen && !hit; at += KEPT) hit = overlaps(kept + at * 5, b, *overlap);
        if (hit) continue;
        float *block = kept + chosen / KEPT * KEPT * 5;
        if (chosen % KEPT == 0) {
          for (dim_t i = 0; i < 5 * KEPT; i++) block[i] = 0;
        }
        float *place = block + chosen++ % KEPT;
        place[0] = b.low[0];
        place[KEPT] = b.low[1];
        place[2 * KEPT] = b.high[0];
        place[3 * KEPT] = b.high[1];
        place[4 * KEPT] = b.area;
        int64_t *row = result + 3 * found++;
        row[0] = image;
        row[1] = name;
        row[2] = candidate;
      }
    }
  }
  *count_of = found;
}
