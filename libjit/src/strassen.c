/// Matrix products by Strassen's algorithm in Winograd's form: seven products of quarters in place of eight. See Knuth, "The Art
/// of Computer Programming", section 4.6.4, exercise 53.
///
/// Rows and depth of the left side are two halves each; columns are pairs of packed blocks. So the right side is packed as for any
/// other product. Of the sums that are multiplied, those of the left side are computed before, by an instruction of their own, for
/// all columns. Those of the right side are differences, each of which the first tile that needs it computes on its
/// way, and leaves for the others. A product that is added to another one begins with it, so that few sums remain after the products.
///
/// A *slab* is so many rows of the upper half and as many of the lower one. A unit is a *band*, some slabs, times some pairs of
/// blocks. Where the rows are odd in number, the middle one is in both halves: only the upper one hands it to the epilogue.
#include "dot.h"
#include "kernels_gen.h"
#include "libjit.h"
#include "product.h"

/// The sums of the quarters of lhs: s1 = a21 + a22, s2 = s1 - a11, s3 = a11 - a21, s4 = a12 - s2. A unit is a pair of rows.
KERNEL void libjit_cpu_strassen_sums_f32(float *result, const float *lhs, const ints_t *result_shape,
                                         const ints_t *lhs_shape, dim_t first_unit, dim_t last_unit) {
  dim_t depth = lhs_shape->at[lhs_shape->size - 1], rows = count_between(lhs_shape, 0, lhs_shape->size - 1);
  dim_t half_rows = result_shape->at[1], half = result_shape->at[2], size = half_rows * half;
  for (dim_t row = first_unit; row < last_unit; row++) {
    const float *upper = lhs + row * depth, *lower = upper + (rows - half_rows) * depth;
    float *to = result + row * half;
    // The last vector ends with the last number: it may compute some a second time.
    for (dim_t next = 0; next < half; next += LANES) {
      dim_t k = min_dim(next, half - LANES);
      vf a11 = *(const vf *)(upper + k), a12 = *(const vf *)(upper + half + k);
      vf a21 = *(const vf *)(lower + k), a22 = *(const vf *)(lower + half + k);
      vf s1 = a21 + a22, s2 = s1 - a11;
      *(vf *)(to + k) = s1;
      *(vf *)(to + size + k) = s2;
      *(vf *)(to + 2 * size + k) = a11 - a21;
      *(vf *)(to + 3 * size + k) = a12 - s2;
    }
  }
}

/// The steps of a tile. Where there is something to subtract from weights, the difference is kept.
INLINE void add_chained(vf sums[MAX_TILE_PIXELS][MAX_TILE_VECTORS], const float *input, const float *weights,
                        const reach_t *reach, dim_t pixels, dim_t vectors, dim_t block, bool subtracts) {
  const float *ahead = reach->ahead, *subtracted = reach->subtracted;
  float *difference = reach->difference;
  dim_t pixel_step = reach->pixel_step, ahead_step = reach->ahead_step, run = reach->run;
  ROLLED for (dim_t k = 0; k < run; k++) {
    if (LANES > 1) __builtin_prefetch(ahead, 0, 2);
    ahead += ahead_step;
    vf weight[MAX_TILE_VECTORS];
    UNROLL for (dim_t v = 0; v < vectors; v++) {
      weight[v] = *(const vf *)(weights + k * block + v * LANES);
      if (!subtracts) continue;
      weight[v] -= *(const vf *)(subtracted + k * block + v * LANES);
      *(vf *)(difference + k * block + v * LANES) = weight[v];
    }
    UNROLL for (dim_t p = 0; p < pixels; p++) {
      vf x = SPLAT(input[p * pixel_step + k], vf);
      UNROLL for (dim_t v = 0; v < vectors; v++) sums[p][v] = MULTIPLY_ADD(sums[p][v], x, weight[v]);
    }
  }
}

/// A regular tile that begins with the sums of each pixel.
KERNEL void libjit_tile_chained_f32(float *to, const float *start, const float *input, const float *weights,
                                    const reach_t *reach, dim_t pixels, dim_t vectors, dim_t block) {
  vf sums[MAX_TILE_PIXELS][MAX_TILE_VECTORS];
  dim_t start_step = reach->start_step;
  UNROLL for (dim_t p = 0; p < pixels; p++) {
    UNROLL for (dim_t v = 0; v < vectors; v++) sums[p][v] = *(const vf *)(start + p * start_step + v * LANES);
  }
  if (reach->subtracted) add_chained(sums, input, weights, reach, pixels, vectors, block, true);
  else add_chained(sums, input, weights, reach, pixels, vectors, block, false);
  UNROLL for (dim_t p = 0; p < pixels; p++) {
    UNROLL for (dim_t v = 0; v < vectors; v++) *(vf *)(to + p * block + v * LANES) = sums[p][v];
  }
}

/// What all products of a slab share.
typedef struct {
  const tiles_t *tiles;
  epilogue_t epilogue;
  const void *env;
  dim_t count, tile_pixels, depth, block;
  dim_t fetch;       ///< weights to fetch ahead at each step: a quarter while another one is multiplied
  float *difference; ///< the latest difference of quarters of the right side
} slab_t;

/// One of the seven products. Steps count floats.
typedef struct {
  const float *lhs;
  dim_t step;
  const float *rhs, *subtracted; ///< quarters of the right side, or the latest difference; the second may be NULL
  const float *ahead;            ///< a quarter to fetch, or NULL
  const float *start;            ///< what the sums begin with, or NULL
  float *to;                     ///< NULL if they are results
} chained_t;

/// Where the sums of a slab belong in the result; `skip` of its rows do not.
typedef struct {
  dim_t row, col, skip, valid;
} place_t;

INLINE void finish(const slab_t *s, place_t at, const float *sums, dim_t first, dim_t pixels) {
  dim_t skip = first ? 0 : at.skip;
  if (at.valid <= 0 || pixels <= skip) return;
  s->epilogue(s->env, sums + skip * s->block, s->block, at.row + first + skip, at.col, pixels - skip, at.valid);
}

/// A product of all rows of a slab. `at` says where it belongs, where that is the result.
INLINE void multiply_slab(const slab_t *s, const chained_t *c, place_t at) {
  float sums[MAX_TILE_SUMS * LANES] ALIGNED;
  dim_t fetched = 0;
  for (dim_t first = 0; first < s->count; first += s->tile_pixels) {
    dim_t pixels = min_dim(s->tile_pixels, s->count - first);
    bool differs = c->subtracted && first == 0;
    const float *weights = c->subtracted && !differs ? s->difference : c->rhs;
    float *to = c->to ? c->to + first * s->block : sums;
    reach_t reach = {.run = s->depth,
                     .pixel_step = c->step,
                     .ahead = c->ahead ? c->ahead + fetched : weights,
                     .ahead_step = c->ahead ? s->fetch : 0,
                     .start_step = c->start ? s->block : 0,
                     .subtracted = differs ? c->subtracted : NULL,
                     .difference = s->difference};
    fetched += s->fetch * s->depth;
    s->tiles->regular[pixels < s->tile_pixels][0](to, c->start ? c->start + first * s->block : (const void *)NO_BIAS,
                                                  c->lhs + first * c->step, weights, &reach, pixels, s->block / LANES);
    if (!c->to) finish(s, at, sums, first, pixels);
  }
}

INLINE void add_vectors(float *to, const float *x, const float *y, dim_t size) {
  for (dim_t i = 0; i < size; i += LANES) *(vf *)(to + i) = *(const vf *)(x + i) + *(const vf *)(y + i);
}

/// Hands x + y to the epilogue.
INLINE void finish_sum(const slab_t *s, place_t at, const float *x, const float *y) {
  float sums[MAX_TILE_SUMS * LANES] ALIGNED;
  for (dim_t first = 0; first < s->count; first += s->tile_pixels) {
    dim_t pixels = min_dim(s->tile_pixels, s->count - first), from = first * s->block;
    add_vectors(sums, x + from, y + from, pixels * s->block);
    finish(s, at, sums, first, pixels);
  }
}

/// The right side is [2 * pairs][K][NR]; all weights of a tile are those of one block.
KERNEL void libjit_cpu_strassen_f32(float *result, const float *lhs, const float *sums, const float *rhs, float *work,
                                    const ints_t *result_shape, const ints_t *lhs_shape, const ints_t *sums_shape,
                                    const ints_t *rhs_shape, const ints_t *work_shape, const ints_t *result_strides,
                                    dim_t tile_pixels, dim_t tile_vectors, dim_t slab, dim_t bands, dim_t pairs,
                                    dim_t first_unit, dim_t last_unit, const tiles_t *tiles, epilogue_t epilogue,
                                    const void *env) {
  dim_t depth = rhs_shape->at[1], half = sums_shape->at[2], block = tile_vectors * LANES;
  dim_t cols = result_shape->at[result_shape->size - 1], rows = count_between(result_shape, 0, result_shape->size - 1);
  dim_t half_rows = sums_shape->at[1], lower = rows - half_rows, matrix = half_rows * half, quarter = half * block;
  dim_t all_pairs = rhs_shape->at[0] / 2, parts = ceil_div(all_pairs, pairs);
  dim_t all_slabs = ceil_div(half_rows, slab), slabs = ceil_div(all_slabs, bands);
  dim_t line = 64 / (dim_t)sizeof(float), room = slab * block;
  slab_t s = {.tiles = tiles,
              .epilogue = epilogue,
              .env = env,
              .tile_pixels = tile_pixels,
              .depth = half,
              .block = block,
              .fetch = min_dim(ceil_div(block, ceil_div(slab, tile_pixels)), line)};
  for (dim_t unit = first_unit; unit < last_unit; unit++) {
    float *u = work + unit * work_shape->at[1], *v = u + room, *w = v + room, *x = w + room;
    dim_t first_slab = unit / parts * slabs, last_slab = min_dim(first_slab + slabs, all_slabs);
    dim_t first_pair = unit % parts * pairs, last_pair = min_dim(first_pair + pairs, all_pairs);
    s.difference = x + room;
    for (dim_t first = first_slab * slab; first < min_dim(last_slab * slab, half_rows); first += slab) {
      const float *a11 = lhs + first * depth, *a12 = a11 + half, *a22 = a12 + lower * depth;
      const float *s1 = sums + first * half, *s2 = s1 + matrix, *s3 = s2 + matrix, *s4 = s3 + matrix;
      s.count = min_dim(slab, half_rows - first);
      for (dim_t pair = first_pair; pair < last_pair; pair++) {
        const float *b11 = rhs + pair * 4 * quarter, *b21 = b11 + quarter, *b12 = b21 + quarter, *b22 = b12 + quarter;
        const float *next = pair + 1 < last_pair ? b22 + quarter : NULL, *t = s.difference;
        dim_t left = pair * 2 * block, right = left + block;
        place_t c11 = {first, left, 0, min_dim(block, cols - left)}, c12 = {first, right, 0, min_dim(block, cols - right)};
        place_t c21 = c11, c22 = c12;
        c21.row = c22.row = lower + first;
        c21.skip = c22.skip = first ? 0 : half_rows - lower;
        const chained_t products[] = {
            {a11, depth, b11, NULL, b12, NULL, u}, // u = p1
            {s1, half, b12, b11, b22, NULL, v},    // v = p5, of t1 = b12 - b11
            {s2, half, b22, t, b21, u, w},         // w = p1 + p6, of t2 = b22 - t1
            {a22, depth, b21, t, NULL, NULL, x},   // x = -p4, of b21 - t2
            {a12, depth, b21, NULL, next, u, NULL},
            {s3, half, b22, b12, NULL, w, u},      // u = p1 + p6 + p7, of b22 - b12
            {s4, half, b22, NULL, NULL, w, NULL},
        };
        ROLLED for (dim_t i = 0; i < 7; i++) {
          if (i == 6) {
            finish_sum(&s, c21, u, x);
            finish_sum(&s, c22, u, v);
            add_vectors(w, w, v, s.count * block);
          }
          multiply_slab(&s, &products[i], i == 4 ? c11 : c12);
        }
      }
    }
  }
}
