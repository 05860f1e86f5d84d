/// Sorting: keys with the places that they are from, in ascending order, equal ones as they come.
///
/// A number of any kind has a key, an unsigned integer of its width: keys are in the order of their numbers, both zeros have one
/// key, and so have all NaNs, which come last. So there is one sort for all kinds.
#ifndef LIBJIT_SORT_H
#define LIBJIT_SORT_H

#include "libjit.h"
#include "math.h"

/// Keys, and the place of each.
typedef struct {
  uint64_t *keys;
  int64_t *places;
} order_t;

/// Memory for `n` keys and their places, of which an array has room for several, one after the other.
INLINE order_t order_in(int64_t *memory, dim_t n, dim_t number) {
  return (order_t){(uint64_t *)memory + 2 * n * number, memory + 2 * n * number + n};
}

INLINE order_t order_from(order_t order, dim_t start) { return (order_t){order.keys + start, order.places + start}; }

/// So many are compared with one at a time.
enum { ABREAST = 8 };

/// Up to so many are compared with each other; of more, digits are cheaper.
enum { FEW_KEYS = LANES < 2 ? 16 : 16 * LANES };

typedef uint64_t abreast_t __attribute__((ext_vector_type(ABREAST), aligned(8), may_alias));

/// The place of a key is the number of those that are less, or equal and before it.
INLINE void sort_few_keys(order_t from, order_t to, dim_t n) {
  for (dim_t start = 0; start < n; start += ABREAST) {
    dim_t size = min_dim(ABREAST, n - start);
    abreast_t own = 0, before = 0, number = {0, 1, 2, 3, 4, 5, 6, 7};
    for (dim_t i = 0; i < size; i++) own[i] = from.keys[start + i];
    for (dim_t i = 0; i < start; i++) before -= (abreast_t)((abreast_t)from.keys[i] <= own);
    for (dim_t i = 0; i < size; i++) {
      abreast_t key = from.keys[start + i];
      before -= (abreast_t)((key < own) | ((key == own) & ((abreast_t)(uint64_t)i < number)));
    }
    for (dim_t i = start + size; i < n; i++) before -= (abreast_t)((abreast_t)from.keys[i] < own);
    for (dim_t i = 0; i < size; i++) {
      to.keys[before[i]] = from.keys[start + i];
      to.places[before[i]] = from.places[start + i];
    }
  }
}

/// By one digit of 8 bits (Seward 1954); false if it is the same in all keys, which are left where they are.
INLINE bool sort_by_digit(order_t from, order_t to, dim_t n, dim_t shift) {
  dim_t starts[256] = {0}, next = 0;
  for (dim_t i = 0; i < n; i++) starts[from.keys[i] >> shift & 255]++;
  if (starts[from.keys[0] >> shift & 255] == n) return false;
  for (dim_t digit = 0; digit < 256; digit++) {
    dim_t size = starts[digit];
    starts[digit] = next;
    next += size;
  }
  for (dim_t i = 0; i < n; i++) {
    uint64_t key = from.keys[i];
    dim_t at = starts[key >> shift & 255]++;
    to.keys[at] = key;
    to.places[at] = from.places[i];
  }
  return true;
}

/// Turns keys round that are all in descending order.
INLINE void reverse_keys(order_t order, dim_t n) {
  for (dim_t low = 0, high = n - 1; low < high; low++, high--) {
    uint64_t key = order.keys[low];
    int64_t place = order.places[low];
    order.keys[low] = order.keys[high];
    order.places[low] = order.places[high];
    order.keys[high] = key;
    order.places[high] = place;
  }
}

INLINE void copy_keys(order_t to, order_t from, dim_t n) {
  for (dim_t i = 0; i < n; i++) to.keys[i] = from.keys[i];
  for (dim_t i = 0; i < n; i++) to.places[i] = from.places[i];
}

/// How many keys are in order, from the first one on.
INLINE dim_t sorted_keys(order_t order, dim_t n) {
  dim_t size = 1;
  while (size < n && order.keys[size - 1] <= order.keys[size]) size++;
  return size;
}

OUT_OF_LINE void sort_all_keys(order_t order, order_t spare, dim_t n, dim_t bytes) {
  if (sorted_keys(order, n) >= n) return;
  dim_t down = 1;
  while (down < n && order.keys[down - 1] > order.keys[down]) down++;
  if (down >= n) return reverse_keys(order, n);
  order_t from = order, to = spare;
  if (n <= FEW_KEYS) {
    sort_few_keys(from, to, n);
    from = spare;
  } else {
    ROLLED for (dim_t shift = 0; shift < 8 * bytes; shift += 8) {
      if (!sort_by_digit(from, to, n, shift)) continue;
      order_t other = from;
      from = to;
      to = other;
    }
  }
  if (from.keys != order.keys) copy_keys(order, from, n);
}

/// Sorts `n` keys of so many `bytes`; there is `spare` memory for as many. Where the first half is in order, only what comes
/// after it is sorted, and merged with it from the end.
INLINE void sort_keys(order_t order, order_t spare, dim_t n, dim_t bytes) {
  dim_t left = sorted_keys(order, n);
  left = 2 * left < n ? 0 : left;
  dim_t right = n - left;
  sort_all_keys(order_from(order, left), spare, right, bytes);
  if (left == 0) return;
  copy_keys(spare, order_from(order, left), right);
  while (right > 0) {
    bool takes_left = left > 0 && spare.keys[right - 1] < order.keys[left - 1];
    left -= takes_left;
    right -= !takes_left;
    order.keys[left + right] = takes_left ? order.keys[left] : spare.keys[right];
    order.places[left + right] = takes_left ? order.places[left] : spare.places[right];
  }
}

/// Puts a key where it belongs among `n` that are in order: after those that are equal.
INLINE void insert_key(order_t order, dim_t n, uint64_t key, int64_t place) {
  for (; n > 0 && key < order.keys[n - 1]; n--) {
    order.keys[n] = order.keys[n - 1];
    order.places[n] = order.places[n - 1];
  }
  order.places[n] = place;
  order.keys[n] = key;
}

#define INTEGER_KEY(suffix, type, key, least) \
  INLINE key key_##suffix(type x) { return (key)((key)x - (key)least); }

/// The digits of a negative number are the more the less it is.
#define FLOAT_KEY(suffix, type, key, sign, infinity)                          \
  INLINE key key_##suffix(type x) {                                           \
    key bits = bits_##suffix(x), size = bits & ~sign;                         \
    key place = bits == size ? bits | sign : ~bits;                           \
    return size > infinity ? ~(key)0 : size == 0 ? sign : place;              \
  }

FLOAT_KEY(f32, float, uint32_t, 0x80000000u, 0x7f800000u)
FLOAT_KEY(f64, double, uint64_t, 0x8000000000000000ull, 0x7ff0000000000000ull)
INTEGER_KEY(i8, int8_t, uint8_t, INT8_MIN)
INTEGER_KEY(i16, int16_t, uint16_t, INT16_MIN)
INTEGER_KEY(i32, int32_t, uint32_t, INT32_MIN)
INTEGER_KEY(i64, int64_t, uint64_t, INT64_MIN)
INTEGER_KEY(u8, uint8_t, uint8_t, 0)
INTEGER_KEY(u16, uint16_t, uint16_t, 0)
INTEGER_KEY(u32, uint32_t, uint32_t, 0)
INTEGER_KEY(u64, uint64_t, uint64_t, 0)
INTEGER_KEY(b, bool, uint8_t, 0)

#endif
