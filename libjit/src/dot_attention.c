/// Scaled dot-product attention without the matrix of scores: keys are taken a block at a time, and of each row of queries only the
/// largest score so far, the sum of the weights and the weighted sum of the values are kept, which are corrected where a larger
/// score comes (Milakov and Gimelshein, "Online normalizer calculation for softmax"; Dao et al., "FlashAttention").
///
/// Scores lie with keys as rows and queries as columns. So keys and values are read by rows as they lie, only queries are
/// transposed, once, and what is done along the keys is done with whole vectors of queries, without sums across their lanes.
///
/// A unit computes some *items*, each of them `rows` queries of one head. Each unit has scratch memory of its own.
///
/// Where both products are of numbers in bf16, all that they read is in scratch memory in *words* of two neighbours: queries and keys of
/// neighbours in depth, values and weights of those of two keys. Keys and values are arranged once for all queries of an item.
#include "dot.h"
#include "kernels_gen.h"
#include "lanes.h"
#include "libjit.h"
#include "math.h"
#include "tile.h"
#include "transpose.h"

/// At most so many queries of a head are computed one by one: as rows of dot products, for which nothing is arranged.
#define FEW_QUERIES 4

/// What all items share. Steps count elements; masks that do not advance along a dimension have a step of 0 there.
typedef struct {
  dim_t queries, keys, depth, width, padded; ///< `padded`: the width in whole vectors
  dim_t query_step, key_step, key_depth_step, value_step, result_step;
  dim_t block, tile_keys, tile_rows, group; ///< `group`: queries of some vectors
  float scale, softcap;
  bool causal;
  dim_t diagonal;
  bool clears_nan, in_bf16;
  dim_t steps; ///< of a product over the depth
} attention_t;

/// One mask of an item: of its first query.
typedef struct {
  const float *from; ///< NULL without a mask
  dim_t key_step, row_step;
  bool chooses; ///< what is not 0 takes the score's place; else all is added
} mask_t;

/// The scratch memory of a unit.
typedef struct {
  float *queries, *keys, *values, *scores, *sums, *tops, *totals;
} room_t;

/// exp(x) for x of at most 0, to 2^-22 of 1; 0 below -87, where results become subnormal. One product less than an exponential to the last
/// digit: the sum of the weights is 1 or more, and what x * log2(e) loses grows with x, as weights vanish.
INLINE vf weights_of(vf x) {
  vf shifted = x * 0x1.715476p+0f + (ROUNDER_F32 + 127.0f), k = shifted - (ROUNDER_F32 + 127.0f);
  vf r = x * 0x1.715476p+0f - k;
  vf power = (((0x1.5bba14p-10f * r + 0x1.3cea88p-7f) * r + 0x1.c6b752p-5f) * r + 0x1.ebf9bcp-3f) * r + 0x1.62e42ap-1f;
  power = power * r + 1.0f;
  return choose_lanes_f32(x < -87.0f, (vf){}, power * (vf)((vi)shifted << 23));
}

/// What scores are taken less: the largest, or 0 where all of them are -infinity, so that none of them becomes NaN.
INLINE vf shift_of(vf top) { return choose_lanes_f32(top == -INF_F32, (vf){}, top); }

/// x * scale - shift, where x * scale is rounded as the largest one was that became `shift`: so that one less itself is 0. Without
/// rounding it would be what that was rounded by, which is more than 88 for scores of billions.
INLINE vf lower_lanes(vf x, float scale, vf shift) {
#pragma clang fp contract(off)
  return x * scale - shift;
}

/// What sums of tiles begin with, and what they are multiplied by when they are stored.
typedef struct {
  const float *from; ///< each row times its factor; NULL for zeros
  dim_t step;
  const float *factors, *scales; ///< no scales if NULL
} frame_t;

BEGIN_BF16

/// One step of some rows in words of two numbers in bf16.
INLINE void add_words(vf sums[MAX_TILE_PIXELS][MAX_TILE_VECTORS], const float *left, dim_t left_row, const float *right,
                      dim_t rows, dim_t vectors) {
  vf line[MAX_TILE_VECTORS][PARTS_bf16], x[PARTS_bf16];
  UNROLL for (dim_t v = 0; v < vectors; v++) load_weights_bf16(line[v], (const bf16_t *)(right + v * LANES));
  UNROLL for (dim_t r = 0; r < rows; r++) {
    broadcast_bf16(x, (const bf16_t *)(left + r * left_row));
    UNROLL for (dim_t v = 0; v < vectors; v++) {
      UNROLL for (dim_t i = 0; i < PARTS_bf16; i++) sums[r][v] = add_products_bf16(sums[r][v], x[i], line[v][i]);
    }
  }
}

/// Some rows of `left`, whose elements lie `left_row` and `left_step` apart, times some vectors of the rows of `right`. Elements
/// are floats, or words of two numbers in bf16.
INLINE void multiply_rows(float *to, dim_t to_step, const float *left, dim_t left_row, dim_t left_step, const float *right,
                          dim_t right_step, dim_t depth, frame_t frame, dim_t rows, dim_t vectors, bool words) {
  vf sums[MAX_TILE_PIXELS][MAX_TILE_VECTORS];
  UNROLL for (dim_t r = 0; r < rows; r++) {
    UNROLL for (dim_t v = 0; v < vectors; v++)
        sums[r][v] = frame.from ? *(const vf *)(frame.from + r * frame.step + v * LANES) * frame.factors[r] : (vf){};
  }
  ROLLED for (dim_t k = 0; words && k < depth; k++)
    add_words(sums, left + k * left_step, left_row, right + k * right_step, rows, vectors);
  ROLLED for (dim_t k = 0; !words && k < depth; k++) {
    vf line[MAX_TILE_VECTORS];
    UNROLL for (dim_t v = 0; v < vectors; v++) line[v] = *(const vf *)(right + v * LANES);
    UNROLL for (dim_t r = 0; r < rows; r++) {
      vf x = SPLAT(left[r * left_row], vf);
      UNROLL for (dim_t v = 0; v < vectors; v++) sums[r][v] = MULTIPLY_ADD(sums[r][v], x, line[v]);
    }
    right += right_step;
    left += left_step;
  }
  UNROLL for (dim_t r = 0; r < rows; r++) {
    UNROLL for (dim_t v = 0; v < vectors; v++)
        *(vf *)(to + r * to_step + v * LANES) = frame.scales ? sums[r][v] * frame.scales[r] : sums[r][v];
  }
}

/// A vector of scores after a mask, at one key, for queries from `row` on, of which there are `valid`.
INLINE vf masked(vf x, const mask_t *mask, dim_t key, dim_t row, dim_t valid) {
  if (!mask->from) return x;
  const float *from = mask->from + key * mask->key_step;
  vf some = {};
  if (mask->row_step == 0) some = SPLAT(*from, vf);
  else if (row + LANES <= valid) some = *(const vf *)(from + row);
  else
    for (dim_t i = row; i < valid; i++) some[i - row] = from[i];
  return mask->chooses ? choose_lanes_f32(some == 0, x, some) : x + some;
}

/// The same of a single score.
INLINE float masked_alone(float x, const mask_t *mask, dim_t key, dim_t row) {
  if (!mask->from) return x;
  float one = mask->from[key * mask->key_step + row * mask->row_step];
  return !mask->chooses ? x + one : one == 0 ? x : one;
}

/// Scales `n` neighbouring scores, and caps them.
INLINE void scale_scores(float *scores, const attention_t *a, dim_t n) {
  for (dim_t i = 0; i < n; i++) {
    float x = scores[i] * a->scale;
    scores[i] = a->softcap == 0 ? x : a->softcap * math_tanh_f32(x / a->softcap);
  }
}

/// The larger of each lane.
INLINE vf larger_lanes(vf a, vf b) { return choose_lanes_f32(a > b, a, b); }

/// The largest scores of some vectors of queries and `count` keys from `first` on, all of them finished; `tops` so far.
INLINE void mask_scores(float *scores, const attention_t *a, const mask_t masks[2], dim_t first, dim_t count, dim_t row, vf *tops,
                        dim_t vectors) {
  if (a->softcap != 0)
    for (dim_t k = 0; k < count; k++) scale_scores(scores + k * a->group, a, vectors * LANES);
  UNROLL for (dim_t v = 0; v < vectors; v++) {
    vf top = tops[v];
    vi rows;
    dim_t from = row + v * LANES;
    for (dim_t i = 0; i < LANES; i++) rows[i] = (int32_t)(from + i + a->diagonal);
    bool hides = a->causal && first + count - 1 > from + a->diagonal;
    for (dim_t k = 0; k < count; k++) {
      float *at = scores + k * a->group + v * LANES;
      vf x = *(const vf *)at * (a->softcap == 0 ? a->scale : 1);
      UNROLL for (dim_t m = 0; m < 2; m++) x = masked(x, &masks[m], first + k, from, a->queries);
      if (hides) x = choose_lanes_f32(rows < (int32_t)(first + k), SPLAT(-INF_F32, vf), x);
      top = larger_lanes(x, top);
      *(vf *)at = x;
    }
    tops[v] = top;
  }
}

/// Turns the scores of some vectors of queries and `count` keys from `first` on into weights. The sums and the largest scores are
/// kept up to date, and what is summed so far has to be multiplied by `factors`.
INLINE void weigh(float *scores, const attention_t *a, const mask_t masks[2], dim_t first, dim_t count, dim_t row, float *tops,
                  float *totals, float *factors, dim_t vectors) {
  vf top[MAX_TILE_VECTORS], shift[MAX_TILE_VECTORS], total[MAX_TILE_VECTORS];
  bool plain = !masks[0].from && !masks[1].from && a->softcap == 0 && a->scale > 0 &&
               !(a->causal && first + count - 1 > row + a->diagonal);
  float scale = plain ? a->scale : 1;
  if (plain) {
    vf other[MAX_TILE_VECTORS];
    UNROLL for (dim_t v = 0; v < vectors; v++) top[v] = other[v] = *(const vf *)(scores + v * LANES);
    for (dim_t k = 0; k + 1 < count; k += 2) {
      UNROLL for (dim_t v = 0; v < vectors; v++) {
        top[v] = larger_lanes(*(const vf *)(scores + k * a->group + v * LANES), top[v]);
        other[v] = larger_lanes(*(const vf *)(scores + (k + 1) * a->group + v * LANES), other[v]);
      }
    }
    UNROLL for (dim_t v = 0; v < vectors; v++) {
      top[v] = larger_lanes(other[v], top[v]);
      top[v] = larger_lanes(*(const vf *)(scores + (count - 1) * a->group + v * LANES), top[v]) * scale;
      top[v] = larger_lanes(top[v], *(const vf *)(tops + v * LANES));
    }
  } else {
    UNROLL for (dim_t v = 0; v < vectors; v++) top[v] = *(const vf *)(tops + v * LANES);
    mask_scores(scores, a, masks, first, count, row, top, vectors);
  }
  UNROLL for (dim_t v = 0; v < vectors; v++) {
    shift[v] = shift_of(top[v]);
    vf factor = weights_of(*(const vf *)(tops + v * LANES) - shift[v]);
    total[v] = *(const vf *)(totals + v * LANES) * factor;
    *(vf *)(factors + v * LANES) = factor;
    *(vf *)(tops + v * LANES) = top[v];
  }
  dim_t keys = a->in_bf16 ? 2 : 1;
  for (dim_t k = 0; k < count; k += keys) {
    UNROLL for (dim_t v = 0; v < vectors; v++) {
      float *at = scores + k * a->group + v * LANES;
      vf weight = weights_of(lower_lanes(*(const vf *)at, scale, shift[v])), next = {};
      total[v] += weight;
      if (a->in_bf16 && k + 1 < count) next = weights_of(lower_lanes(*(const vf *)(at + a->group), scale, shift[v]));
      total[v] += next;
      if (a->in_bf16) *(vi *)(scores + k / 2 * a->group + v * LANES) = words_of_lanes(weight, next);
      else *(vf *)at = weight;
    }
  }
  UNROLL for (dim_t v = 0; v < vectors; v++) *(vf *)(totals + v * LANES) = total[v];
}

/// Rows of `size` elements, `step` apart, one after the other, with zeros to `to_size` elements and `to_rows` rows.
INLINE void copy_rows(float *restrict to, const float *restrict from, dim_t rows, dim_t size, dim_t step, dim_t inner,
                      dim_t to_rows, dim_t to_size) {
  for (dim_t r = 0; r < rows; r++) {
    for (dim_t i = 0; i < size; i++) to[r * to_size + i] = from[r * step + i * inner];
    for (dim_t i = size; i < to_size; i++) to[r * to_size + i] = 0;
  }
  for (dim_t i = rows * to_size; i < to_rows * to_size; i++) to[i] = 0;
}

/// Rows of `depth` elements as words of two, one after the other, with zeros to `to_rows` rows.
INLINE void pack_keys(float *restrict to, const float *restrict from, const attention_t *a, dim_t rows, dim_t to_rows) {
  bf16_t *halves = (bf16_t *)to;
  for (dim_t r = 0; r < rows; r++, halves += 2 * a->steps) {
    const float *row = from + r * a->key_step;
    dim_t whole = a->key_depth_step == 1 ? a->depth / LANES * LANES : 0;
    for (dim_t d = 0; d < whole; d += LANES) store_lanes_bf16(halves + d, *(const vf *)(row + d));
    for (dim_t d = whole; d < a->depth; d++) halves[d] = bf16_of_f32(row[d * a->key_depth_step]);
    if (a->depth % 2) halves[a->depth] = 0;
  }
  __builtin_memset(halves, 0, (to_rows - rows) * a->steps * sizeof(float));
}

/// Rows of values as words of those of two keys, with zeros to whole vectors, and after the last key of an odd number.
INLINE void pack_values(float *restrict to, const float *restrict from, const attention_t *a, dim_t keys) {
  dim_t whole = a->width / LANES * LANES;
  for (dim_t k = 0; k < keys; k += 2, to += a->padded) {
    const float *row = from + k * a->value_step;
    bool has_next = k + 1 < keys;
    for (dim_t c = 0; c < a->padded; c += LANES) {
      vf first = {}, next = {};
      if (c < whole) first = *(const vf *)(row + c);
      else
        for (dim_t i = c; i < a->width; i++) first[i - c] = row[i];
      if (has_next && c < whole) next = *(const vf *)(row + a->value_step + c);
      else
        for (dim_t i = c; has_next && i < a->width; i++) next[i - c] = row[a->value_step + i];
      *(vi *)(to + c) = words_of_lanes(first, next);
    }
  }
}

/// Rows of queries with a column each, in words of two of these rows.
INLINE void pack_queries(float *queries, const attention_t *a) {
  for (dim_t d = 0; d < a->steps; d++) {
    for (dim_t i = 0; i < a->group; i += LANES) {
      const float *from = queries + 2 * d * a->group + i;
      vf first = *(const vf *)from, next = {};
      if (2 * d + 1 < a->depth) next = *(const vf *)(from + a->group);
      *(vi *)(queries + d * a->group + i) = words_of_lanes(first, next);
    }
  }
}

/// The scores of a group of queries, of which there are some vectors, and of a block of keys. Keys are copied where a tile would reach
/// beyond the last of them, or where its rows lie so that they would push each other out of the first-level cache.
INLINE void score_group(const attention_t *a, const room_t *room, const float *queries, const float *key, dim_t count,
                        dim_t vectors) {
  for (dim_t k = 0; a->in_bf16 && k < count; k += a->tile_keys)
    multiply_rows(room->scores + k * a->group, a->group, room->keys + k * a->steps, a->steps, 1, queries, a->group, a->steps,
                  (frame_t){}, a->tile_keys, vectors, true);
  if (a->in_bf16) return;
  bool copies = a->key_depth_step != 1 || a->key_step * (dim_t)sizeof(float) % 4096 == 0;
  for (dim_t k = 0; k < count; k += a->tile_keys) {
    const float *from = key + k * a->key_step;
    dim_t some = min_dim(a->tile_keys, count - k), step = a->key_step;
    if (copies || some < a->tile_keys) {
      copy_rows(room->keys, from, some, a->depth, a->key_step, a->key_depth_step, a->tile_keys, a->depth);
      from = room->keys;
      step = a->depth;
    }
    multiply_rows(room->scores + k * a->group, a->group, from, step, 1, queries, a->group, a->depth, (frame_t){}, a->tile_keys,
                  vectors, false);
  }
}

/// What sums are multiplied by at last. Where weights that are NaN count as 0, all of a query that sees no key are 0 already.
INLINE float inverse_of(const attention_t *a, float total) { return a->clears_nan && total == 0 ? 1 : 1 / total; }

/// Where a group of queries stands: of how many there is a query, the place of the result, and which of its blocks of keys this is.
typedef struct {
  dim_t queries;
  float *result; ///< NULL where vectors would reach beyond its rows
  bool begins, ends;
} place_t;

/// Adds weighted values to the sums of a group of queries, for `vectors` vectors of the width from number `column` on.
INLINE void add_values(const attention_t *a, const room_t *room, float *sums, const float *value, dim_t step, frame_t frame,
                       dim_t count, place_t place, dim_t queries, dim_t column, dim_t vectors) {
  dim_t steps = a->in_bf16 ? (count + 1) / 2 : count;
  for (dim_t row = 0; row < place.queries; row += a->tile_rows) {
    float *to = sums + row * a->padded + column;
    frame_t here = {place.begins ? NULL : to, a->padded, frame.factors + row, NULL};
    dim_t to_step = a->padded;
    if (place.ends) {
      here.scales = frame.scales + row;
      if (place.result && row + a->tile_rows <= place.queries) {
        to = place.result + row * a->result_step + column;
        to_step = a->result_step;
      }
    }
    if (row + a->tile_rows <= queries)
      multiply_rows(to, to_step, room->scores + row, 1, a->group, value + column, step, steps, here, a->tile_rows, vectors,
                    a->in_bf16);
    else if (queries % a->tile_rows)
      multiply_rows(to, to_step, room->scores + row, 1, a->group, value + column, step, steps, here, queries % a->tile_rows,
                    vectors, a->in_bf16);
  }
}

/// A group of queries, `vectors` vectors of them from number `at` of the item on, meets a block of keys and values.
INLINE void attend_group(const attention_t *a, const room_t *room, const float *key, const float *value, dim_t value_step,
                         const mask_t masks[2], dim_t first_row, dim_t at, dim_t first, dim_t count, place_t place,
                         dim_t vectors) {
  float factors[MAX_TILE_VECTORS * LANES] ALIGNED, scales[MAX_TILE_VECTORS * LANES] ALIGNED, *sums = room->sums + at * a->padded;
  score_group(a, room, room->queries + at * a->steps, key, count, vectors);
  weigh(room->scores, a, masks, first, count, first_row + at, room->tops + at, room->totals + at, factors, vectors);
  if (place.ends)
    for (dim_t i = 0; i < vectors * LANES; i++) scales[i] = inverse_of(a, room->totals[at + i]);
  frame_t frame = {NULL, 0, factors, scales};
  dim_t c = 0;
  for (; c + 2 * LANES <= a->padded; c += 2 * LANES)
    add_values(a, room, sums, value, value_step, frame, count, place, vectors * LANES, c, 2);
  for (; c < a->padded; c += LANES)
    add_values(a, room, sums, value, value_step, frame, count, place, vectors * LANES, c, 1);
}

/// `rows` rows of `depth` elements, `step` apart, as columns of rows of `group` elements, with zeros after them.
INLINE void transpose_rows(float *restrict to, const float *restrict from, dim_t rows, dim_t depth, dim_t step, dim_t group) {
  dim_t whole_rows = rows / 4 * 4, whole = depth / 4 * 4;
  if (rows < group) __builtin_memset(to, 0, depth * group * sizeof(float));
  ROLLED for (dim_t r = 0; r < whole_rows; r += 4) {
    ROLLED for (dim_t d = 0; d < whole; d += 4)
      transpose_4x4_x32((uint32_t *)to + d * group + r, (const uint32_t *)from + r * step + d, step, group);
  }
  for (dim_t r = 0; r < rows; r++)
    for (dim_t d = r < whole_rows ? whole : 0; d < depth; d++) to[d * group + r] = from[r * step + d];
}

/// The keys that queries before `last` see, at least 0.
INLINE dim_t keys_before(const attention_t *a, dim_t last) {
  return a->causal ? max_dim(min_dim(a->keys, last + a->diagonal), 0) : a->keys;
}

/// What a query gets whose weights are NaN: zeros where these count as 0, which make NaN of values that are infinite or NaN.
OUT_OF_LINE void clear_row(float *result, const float *value, dim_t value_step, dim_t keys, dim_t width) {
  for (dim_t i = 0; i < width; i++) {
    result[i] = 0;
    for (dim_t k = 0; k < keys; k++) result[i] += 0 * value[k * value_step + i];
  }
}

/// Queries `first_row` to `last_row` of a head.
INLINE void attend(float *result, const float *query, const float *key, const float *value, const attention_t *a,
                   const room_t *room, const mask_t masks[2], dim_t first_row, dim_t last_row) {
  dim_t rows = last_row - first_row;
  for (dim_t r = 0; r < rows; r += a->group) {
    float *to = room->queries + r * a->steps;
    const float *from = query + (first_row + r) * a->query_step;
    transpose_rows(to, from, min_dim(a->group, rows - r), a->depth, a->query_step, a->group);
    if (a->in_bf16) pack_queries(to, a);
    for (dim_t i = r; i < r + a->group; i++) room->tops[i] = -INF_F32, room->totals[i] = 0;
  }
  dim_t keys = keys_before(a, last_row);
  bool whole = a->padded == a->width;
  float *to = result + first_row * a->result_step;
  for (dim_t first = 0; first < keys; first += a->block) {
    dim_t count = min_dim(a->block, keys - first), step = a->value_step;
    const float *block = key + first * a->key_step, *values = value + first * a->value_step;
    if (a->in_bf16) {
      pack_keys(room->keys, block, a, count, (count + a->tile_keys - 1) / a->tile_keys * a->tile_keys);
      pack_values(room->values, values, a, count);
    } else if (!whole) {
      copy_rows(room->values, values, count, a->width, step, 1, count, a->padded);
    }
    if (a->in_bf16 || !whole) {
      values = room->values;
      step = a->padded;
    }
    for (dim_t at = 0; at < rows; at += a->group) {
      dim_t queries = min_dim(a->group, rows - at), seen = keys_before(a, first_row + at + queries);
      if (first >= seen) continue;
      place_t place = {queries, whole ? to + at * a->result_step : NULL, first == 0, first + a->block >= seen};
      if (queries > LANES && a->group > LANES)
        attend_group(a, room, block, values, step, masks, first_row, at, first, count, place, a->group / LANES);
      else attend_group(a, room, block, values, step, masks, first_row, at, first, count, place, 1);
    }
  }
  for (dim_t r = 0; r < rows; r++) {
    dim_t at = r / a->group * a->group, queries = min_dim(a->group, rows - at);
    dim_t seen = keys_before(a, first_row + at + queries);
    float *row = to + r * a->result_step;
    if (seen == 0)
      for (dim_t i = 0; i < a->width; i++) row[i] = a->keys && !a->clears_nan ? __builtin_nanf("") : 0;
    else if (a->clears_nan && room->totals[r] != room->totals[r])
      clear_row(row, value, a->value_step, keys_before(a, first_row + r + 1), a->width);
    else if (!whole || r - at >= queries / a->tile_rows * a->tile_rows)
      for (dim_t i = 0; i < a->width; i++) row[i] = room->sums[r * a->padded + i];
  }
}

/// The scores of one query and `count` keys, before they are scaled.
INLINE void score_alone(float *restrict scores, const float *restrict query, const float *restrict key, const attention_t *a,
                        dim_t count) {
  if (a->key_depth_step != 1) {
    for (dim_t k = 0; k < count; k++) scores[k] = 0;
    for (dim_t d = 0; d < a->depth; d++)
      for (dim_t k = 0; k < count; k++) scores[k] += query[d] * key[d * a->key_depth_step + k * a->key_step];
    return;
  }
  ROLLED for (dim_t k = 0; k < count; k++) {
    const float *from = key + k * a->key_step;
    vf sums = {};
    dim_t d = 0;
    for (; d + LANES <= a->depth; d += LANES)
      sums = MULTIPLY_ADD(sums, *(const vf *)(query + d), *(const vf *)(from + d));
    float total = sum_of_lanes_f32(sums);
    for (; d < a->depth; d++) total += query[d] * from[d];
    scores[k] = total;
  }
}

/// sums * factor + the weighted values, of `vectors` vectors of the width.
INLINE void add_values_alone(float *sums, const float *scores, const float *value, const attention_t *a, dim_t count,
                             float factor, dim_t vectors) {
  vf total[MAX_TILE_VECTORS];
  UNROLL for (dim_t v = 0; v < vectors; v++) total[v] = *(const vf *)(sums + v * LANES) * factor;
  ROLLED for (dim_t k = 0; k < count; k++) {
    vf weight = SPLAT(scores[k], vf);
    UNROLL for (dim_t v = 0; v < vectors; v++)
        total[v] = MULTIPLY_ADD(total[v], weight, *(const vf *)(value + k * a->value_step + v * LANES));
  }
  UNROLL for (dim_t v = 0; v < vectors; v++) *(vf *)(sums + v * LANES) = total[v];
}

/// One query, for which rows of keys and values are read where they lie.
INLINE void attend_alone(float *restrict result, const float *query, const float *key, const float *value,
                         const attention_t *a, const room_t *room, const mask_t masks[2], dim_t row) {
  float *restrict scores = room->scores, *restrict sums = room->sums, top = -INF_F32, total = 0;
  for (dim_t i = 0; i < a->width; i++) sums[i] = 0;
  dim_t keys = a->causal ? max_dim(min_dim(a->keys, row + 1 + a->diagonal), 0) : a->keys;
  for (dim_t first = 0; first < keys; first += a->block) {
    dim_t count = min_dim(a->block, keys - first);
    float before = top;
    score_alone(scores, query, key + first * a->key_step, a, count);
    scale_scores(scores, a, count);
    for (dim_t k = 0; k < count; k++) {
      float x = masked_alone(masked_alone(scores[k], &masks[0], first + k, row), &masks[1], first + k, row);
      scores[k] = x;
      top = x > top ? x : top;
    }
    for (dim_t k = count; k % LANES; k++) scores[k] = -INF_F32;
    vf shift = shift_of(SPLAT(top, vf)), totals = {};
    float factor = weights_of(SPLAT(before, vf) - shift)[0];
    for (dim_t k = 0; k < count; k += LANES) {
      vf weights = weights_of(*(const vf *)(scores + k) - shift);
      totals += weights;
      *(vf *)(scores + k) = weights;
    }
    total = total * factor + sum_of_lanes_f32(totals);
    const float *values = value + first * a->value_step;
    dim_t c = 0;
    for (; c + 4 * LANES <= a->width; c += 4 * LANES) add_values_alone(sums + c, scores, values + c, a, count, factor, 4);
    for (; c + LANES <= a->width; c += LANES) add_values_alone(sums + c, scores, values + c, a, count, factor, 1);
    for (; c < a->width; c++) {
      sums[c] *= factor;
      for (dim_t k = 0; k < count; k++) sums[c] += scores[k] * values[k * a->value_step + c];
    }
  }
  if (a->clears_nan && total != total) return clear_row(result, value, a->value_step, keys, a->width);
  float inverse = a->keys == 0 ? 0 : inverse_of(a, total);
  for (dim_t i = 0; i < a->width; i++) result[i] = sums[i] * inverse;
}

/// A mask [batch, heads, keys, queries], each of them or 1, for one head; none if it has another rank.
INLINE mask_t mask_of(const float *mask, const ints_t *shape, const ints_t *strides, dim_t batch, dim_t head, bool chooses) {
  if (shape->size != 4) return (mask_t){NULL, 0, 0, false};
  dim_t step[4];
  UNROLL for (dim_t i = 0; i < 4; i++) step[i] = shape->at[i] == 1 ? 0 : strides->at[i];
  return (mask_t){mask + batch * step[0] + head * step[1], step[2], step[3], chooses};
}

/// Queries and result are [B, H, M, K] and [B, H, M, V], keys [B, H', K, N] and values [B, H', N, V], of which each head
/// serves H / H' neighbours.
KERNEL void libjit_cpu_attention_f32(float *result, const float *query, const float *key, const float *value,
                                     const float *bias, const float *mask, float *work, const ints_t *result_shape,
                                     const ints_t *query_shape, const ints_t *key_shape, const ints_t *value_shape,
                                     const ints_t *bias_shape, const ints_t *mask_shape, const ints_t *work_shape,
                                     const ints_t *result_strides, const ints_t *query_strides,
                                     const ints_t *key_strides, const ints_t *value_strides, const ints_t *bias_strides,
                                     const ints_t *mask_strides, float scale, float softcap, bool bias_chooses,
                                     bool mask_chooses, bool causal, dim_t diagonal, bool clears_nan, bool in_bf16,
                                     dim_t units, dim_t rows,
                                     dim_t block, dim_t tile_keys, dim_t tile_rows, dim_t group, dim_t first_unit,
                                     dim_t last_unit) {
  dim_t heads = query_shape->at[1], shared = key_shape->at[1], queries = query_shape->at[2];
  dim_t depth = query_shape->at[3], width = value_shape->at[3], padded = (width + LANES - 1) / LANES * LANES;
  attention_t a = {queries, key_shape->at[3], depth, width, padded, query_strides->at[2], key_strides->at[3],
                   key_strides->at[2], value_strides->at[2], result_strides->at[2], block, tile_keys, tile_rows,
                   group, scale, softcap, causal, diagonal, clears_nan, in_bf16, in_bf16 ? (depth + 1) / 2 : depth};
  dim_t score_rows = (block + tile_keys - 1) / tile_keys * tile_keys;
  bool few = queries <= FEW_QUERIES;
  dim_t blocks = few ? 1 : (queries + rows - 1) / rows, served = heads / shared;
  dim_t items = query_shape->at[0] * (few ? shared : heads) * blocks;
  for (dim_t unit = first_unit; unit < last_unit; unit++) {
    room_t room = {.queries = work + unit * work_shape->at[1]};
    room.keys = room.queries + rows * depth;
    room.values = room.keys + (in_bf16 ? score_rows * a.steps : tile_keys * depth);
    room.scores = room.values + (in_bf16 ? (block + 1) / 2 * padded : padded == width ? 0 : block * padded);
    room.sums = room.scores + score_rows * a.group;
    room.tops = room.sums + rows * padded;
    room.totals = room.tops + rows;
    for (dim_t item = items * unit / units; item < items * (unit + 1) / units; item++) {
      dim_t of_heads = item / blocks, row = item % blocks * rows;
      dim_t batch = of_heads / (few ? shared : heads), first = of_heads % (few ? shared : heads);
      for (dim_t head = few ? first * served : first; head < (few ? first * served + served : first + 1); head++) {
        const float *q = query + batch * query_strides->at[0] + head * query_strides->at[1];
        const float *k = key + batch * key_strides->at[0] + head / served * key_strides->at[1];
        const float *v = value + batch * value_strides->at[0] + head / served * value_strides->at[1];
        float *to = result + batch * result_strides->at[0] + head * result_strides->at[1];
        mask_t masks[2] = {mask_of(bias, bias_shape, bias_strides, batch, head, bias_chooses),
                           mask_of(mask, mask_shape, mask_strides, batch, head, mask_chooses)};
        if (!few) attend(to, q, k, v, &a, &room, masks, row, min_dim(row + rows, queries));
        else
          for (dim_t i = 0; i < queries; i++)
            attend_alone(to + i * a.result_step, q + i * a.query_step, k, v, &a, &room, masks, i);
      }
    }
  }
}

END_BF16
