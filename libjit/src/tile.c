/// The inner loops of convolutions and matrix products, one for each kind of tile, once for each kind of product: this
/// file reads itself.
#ifndef T
#include "dot.h"
#include "tile.h"

// Loops are ROLLED: LLVM would unroll those over taps for some processors (Cortex-A53 by eight, Zen by two), each time with the loop
// over a run inside, which is the one that takes the time.

/// Whether the pointers of a tile leave registers for those of what to fetch ahead.
#if defined(__x86_64__) || defined(__aarch64__)
#define SPARE_POINTER 1
#else
#define SPARE_POINTER 0
#endif

/// What one prefetch fetches.
#define LINE_BYTES 64

#include "as_f32.h"
#include "tile.c"
#if HALF_TILES
#include "as_f32_half.h"
#include "tile.c"
#endif
#include "as_f64.h"
#include "tile.c"
#include "as_i8.h"
#include "tile.c"
#include "as_u8.h"
#include "tile.c"
#include "as_i16.h"
#include "tile.c"
#include "as_bf16.h"
BEGIN_BF16
#include "tile.c"
END_BF16
#else

#if MATRICES

/// Sums of two pixels, p and the next one, are in the vectors of both: the first has lanes 0 and 1 of p, then of the other one; the
/// second has lanes 2 and 3. A last pixel without another one is its own.
INLINE void OF(load_start)(V sums[MAX_TILE_PIXELS][MAX_TILE_VECTORS], const S *start, dim_t pixels, dim_t vectors) {
  UNROLL for (dim_t v = 0; v < vectors; v++) {
    V first = *(const V *)(start + v * W);
    UNROLL for (dim_t p = 0; p < pixels; p += 2) {
      sums[p][v] = __builtin_shufflevector(first, first, 0, 1, 0, 1);
      sums[p + 1][v] = __builtin_shufflevector(first, first, 2, 3, 2, 3);
    }
  }
}

INLINE void OF(store_sums)(S *to, V sums[MAX_TILE_PIXELS][MAX_TILE_VECTORS], dim_t pixels, dim_t vectors) {
  UNROLL for (dim_t p = 0; p < pixels; p += 2) {
    UNROLL for (dim_t v = 0; v < vectors; v++) {
      V low = sums[p][v], high = sums[p + 1][v];
      *(V *)(to + (p * vectors + v) * W) = __builtin_shufflevector(low, high, 0, 1, 4, 5);
      if (p + 1 < pixels)
        *(V *)(to + ((p + 1) * vectors + v) * W) = __builtin_shufflevector(low, high, 2, 3, 6, 7);
    }
  }
}

/// Two neighbouring words of a pixel, or only the first one and zeros.
INLINE int64_t OF(words_at)(const T *from, bool whole) {
  typedef int64_t __attribute__((aligned(1), may_alias)) words_t;
  return whole ? *(const words_t *)from : (int64_t)(uint32_t)*(const word_at_t *)from;
}

/// Two steps of all pixels, or one if they are not `whole`. Weights of two steps lie one after the other.
INLINE void OF(add_two_steps)(V sums[MAX_TILE_PIXELS][MAX_TILE_VECTORS], const T *const from[MAX_TILE_PIXELS], dim_t k,
                              const F *weights, dim_t pixels, dim_t vectors, dim_t block, dim_t block_step, bool whole) {
  typedef int64_t __attribute__((vector_size(16))) pair_t;
  V low[MAX_TILE_VECTORS], high[MAX_TILE_VECTORS];
  UNROLL for (dim_t v = 0; v < vectors; v++) {
    const F *at = weights + v * W / block * block_step + v * W % block * D;
    V first = (V)*(const vi *)at, second = whole ? (V)*(const vi *)(at + block * D) : (V){};
    low[v] = __builtin_shufflevector(first, second, 0, 4, 1, 5);
    high[v] = __builtin_shufflevector(first, second, 2, 6, 3, 7);
  }
  UNROLL for (dim_t p = 0; p < pixels; p += 2) {
    pair_t words = {OF(words_at)(from[p] + k, whole), OF(words_at)(from[p + 1 < pixels ? p + 1 : p] + k, whole)};
    UNROLL for (dim_t v = 0; v < vectors; v++) {
      sums[p][v] = OF(add_matrix)(sums[p][v], (V)words, low[v]);
      sums[p + 1][v] = OF(add_matrix)(sums[p + 1][v], (V)words, high[v]);
    }
  }
}

/// All steps of a run. Returns what to fetch next.
INLINE const F *OF(add_run)(V sums[MAX_TILE_PIXELS][MAX_TILE_VECTORS], const T *const from[MAX_TILE_PIXELS], dim_t run,
                            const F *weights, const F *ahead, dim_t ahead_step, dim_t pixels, dim_t vectors,
                            dim_t block, dim_t block_step) {
  dim_t k = 0;
  ROLLED for (; k + 2 * D <= run; k += 2 * D) {
    __builtin_prefetch(ahead, 0, 2);
    ahead += 2 * ahead_step;
    OF(add_two_steps)(sums, from, k, weights + k * block, pixels, vectors, block, block_step, true);
  }
  if (k < run) OF(add_two_steps)(sums, from, k, weights + k * block, pixels, vectors, block, block_step, false);
  return ahead;
}

#else

INLINE void OF(load_start)(V sums[MAX_TILE_PIXELS][MAX_TILE_VECTORS], const S *start, dim_t pixels, dim_t vectors) {
  UNROLL for (dim_t v = 0; v < vectors; v++) {
    V first = *(const V *)(start + v * W);
    UNROLL for (dim_t p = 0; p < pixels; p++) sums[p][v] = first;
  }
}

INLINE void OF(store_sums)(S *to, V sums[MAX_TILE_PIXELS][MAX_TILE_VECTORS], dim_t pixels, dim_t vectors) {
  UNROLL for (dim_t p = 0; p < pixels; p++) {
    UNROLL for (dim_t v = 0; v < vectors; v++) *(V *)(to + (p * vectors + v) * W) = sums[p][v];
  }
}

#endif

/// The weights of one step, `from` one packed block of `block` channels and those after it.
INLINE void OF(load_step)(V weight[MAX_TILE_VECTORS][OF(PARTS)], const F *from, dim_t vectors, dim_t block,
                          dim_t block_step) {
  UNROLL for (dim_t v = 0; v < vectors; v++)
      OF(load_weights)(weight[v], from + v * W / block * block_step + v * W % block * D);
}

/// One step of one pixel, which reads D elements of input.
INLINE void OF(add_step)(V sums[MAX_TILE_VECTORS], V weight[MAX_TILE_VECTORS][OF(PARTS)], const T *from, dim_t vectors) {
  V x[OF(PARTS)];
  OF(broadcast)(x, from);
  UNROLL for (dim_t v = 0; v < vectors; v++) {
    UNROLL for (dim_t i = 0; i < OF(PARTS); i++) sums[v] = OF(add_products)(sums[v], x[i], weight[v][i]);
  }
}

/// Pixels at equal distances: one pointer serves all. Weights of `block` channels lie together for each step; a tile may
/// span several packed blocks. The first steps fetch `lines` lines at `written`, and at `read` if the tile `reads`, each in
/// another row: all at once would hold up each other, and the tile's own input.
INLINE void OF(multiply_regular)(S *to, const S *start, const T *input, const F *weights, const reach_t *reach,
                                 const char *written, const char *read, dim_t row_bytes, dim_t lines, bool reads,
                                 dim_t pixels, dim_t vectors, dim_t block) {
  V sums[MAX_TILE_PIXELS][MAX_TILE_VECTORS];
  dim_t pixel_step = reach->pixel_step, run = reach->run, block_step = reach->block_step;
  dim_t ahead_step = reach->ahead_step;
#if !MATRICES
  dim_t fetched = 0, rows = pixels * row_bytes;
#endif
  const F *ahead = reach->ahead;
  OF(load_start)(sums, start, pixels, vectors);
  ROLLED for (dim_t h = 0; h < reach->tap_rows; h++) {
    ROLLED for (dim_t w = 0; w < reach->taps; w++) {
      const T *from = input + h * reach->tap_row_step + w * reach->tap_step;
#if MATRICES
      const T *pixel[MAX_TILE_PIXELS];
      UNROLL for (dim_t p = 0; p < pixels; p++) pixel[p] = from + p * pixel_step;
      ahead = OF(add_run)(sums, pixel, run, weights, ahead, ahead_step, pixels, vectors, block, block_step);
      weights += run * block;
#else
      ROLLED for (dim_t k = 0; k < run; k += D) {
        if (LANES > 1) {
          __builtin_prefetch(ahead, 0, 2);
          if (pixels * vectors >= MANY_SUMS) __builtin_prefetch(ahead + reach->ahead_also, 0, 2);
        }
        ahead += ahead_step;
        if (lines > 0 && fetched != rows) {
          UNROLL for (dim_t i = 0; i < lines; i++) {
            __builtin_prefetch(written + fetched + i * LINE_BYTES, 1, 3);
            if (reads) __builtin_prefetch(read + fetched + i * LINE_BYTES, 0, 3);
          }
          fetched += row_bytes;
        }
        V weight[MAX_TILE_VECTORS][OF(PARTS)];
        OF(load_step)(weight, weights, vectors, block, block_step);
        weights += block * D;
        UNROLL for (dim_t p = 0; p < pixels; p++) OF(add_step)(sums[p], weight, from + p * pixel_step + k, vectors);
      }
#endif
    }
  }
  OF(store_sums)(to, sums, pixels, vectors);
}

KERNEL void OF(libjit_tile_regular)(S *to, const S *start, const T *input, const F *weights, const reach_t *reach,
                                    dim_t pixels, dim_t vectors, dim_t block) {
  OF(multiply_regular)(to, start, input, weights, reach, NULL, NULL, 0, 0, false, pixels, vectors, block);
}

/// The same before an epilogue that writes, and may read, so many lines of every row, `row_bytes` apart.
KERNEL void OF(libjit_tile_fetching)(S *to, const S *start, const T *input, const F *weights, const reach_t *reach,
                                     const char *written, const char *read, dim_t row_bytes, dim_t lines, bool reads,
                                     dim_t pixels, dim_t vectors, dim_t block) {
  if (!SPARE_POINTER && reads) {
    UNROLL for (dim_t i = 0; i < pixels * lines; i++)
        __builtin_prefetch(read + i / lines * row_bytes + i % lines * LINE_BYTES, 0, 3);
  }
  OF(multiply_regular)(to, start, input, weights, reach, written, read, row_bytes, SPARE_POINTER ? lines : 0, reads,
                       pixels, vectors, block);
}

/// Pixels anywhere in an image, each with a pointer of its own, which is `zeros` where a tap lies outside.
KERNEL void OF(libjit_tile_scattered)(S *to, const S *start, const T *input, const F *weights, const reach_t *reach,
                                      dim_t pixels, dim_t vectors, dim_t block) {
  V sums[MAX_TILE_PIXELS][MAX_TILE_VECTORS];
  dim_t run = reach->run, block_step = reach->block_step, ahead_step = reach->ahead_step;
  const F *ahead = reach->ahead;
  dim_t row[MAX_TILE_PIXELS], col[MAX_TILE_PIXELS];
  dim_t out_col = reach->out_col, next_row = reach->row, next_col = reach->col;
  UNROLL for (dim_t p = 0; p < pixels; p++) {
    row[p] = next_row;
    col[p] = next_col;
    bool wraps = ++out_col == reach->out_width;
    out_col = wraps ? 0 : out_col;
    next_row += wraps ? reach->row_stride : 0;
    next_col = wraps ? -reach->left : next_col + reach->col_stride;
  }
  OF(load_start)(sums, start, pixels, vectors);
  ROLLED for (dim_t h = 0; h < reach->tap_rows; h++) {
    ROLLED for (dim_t w = 0; w < reach->taps; w++) {
      const T *from[MAX_TILE_PIXELS];
      UNROLL for (dim_t p = 0; p < pixels; p++) {
        dim_t y = row[p] + h * reach->dilation_h, x = col[p] + w * reach->dilation_w;
        bool inside = (size_t)y < (size_t)reach->height && (size_t)x < (size_t)reach->width;
        from[p] = inside ? input + y * reach->tap_row_step + x * reach->tap_step : reach->zeros;
      }
#if MATRICES
      ahead = OF(add_run)(sums, from, run, weights, ahead, ahead_step, pixels, vectors, block, block_step);
      weights += run * block;
#else
      ROLLED for (dim_t k = 0; k < run; k += D) {
        if (SPARE_POINTER) __builtin_prefetch(ahead, 0, 2);
        ahead += ahead_step;
        V weight[MAX_TILE_VECTORS][OF(PARTS)];
        OF(load_step)(weight, weights, vectors, block, block_step);
        weights += block * D;
        UNROLL for (dim_t p = 0; p < pixels; p++) OF(add_step)(sums[p], weight, from[p] + k, vectors);
      }
#endif
    }
  }
  OF(store_sums)(to, sums, pixels, vectors);
}

/// Whether a tile of `size` pixels is one of those that `pixels` pixels are computed in: a whole one, or 16, 8, and one of
/// what is left. At run time nothing but `pixels` is not a constant.
INLINE bool OF(takes_size)(dim_t size, dim_t pixels, dim_t most, bool open_pixels) {
  if (!open_pixels) return size == most;
  if (size >= 8) return size < most && (size & (size - 1)) == 0 && (pixels & size);
  return size < most && size == pixels % 8;
}

/// Tiles of fewer pixels or vectors than whole ones, where how many that are depends on symbolic extents.
KERNEL void OF(libjit_open_regular)(S *to, const S *start, const T *input, const F *weights, const reach_t *reach,
                                    dim_t pixels, dim_t vectors, dim_t most_pixels, dim_t most_vectors, dim_t block,
                                    bool open_pixels, bool open_vectors) {
  UNROLL for (dim_t v = open_vectors ? 1 : most_vectors; v < most_vectors + !open_vectors; v++) {
    if (open_vectors && v != vectors) continue;
    UNROLL for (dim_t size = most_pixels; size > 0; size--) {
      if (!OF(takes_size)(size, pixels, most_pixels, open_pixels)) continue;
      OF(libjit_tile_regular)(to, start, input, weights, reach, size, v, block);
      to += size * v * W;
      input += size * reach->pixel_step;
    }
  }
}

KERNEL void OF(libjit_open_scattered)(S *to, const S *start, const T *input, const F *weights, const reach_t *reach,
                                      dim_t pixels, dim_t vectors, dim_t most_pixels, dim_t most_vectors, dim_t block,
                                      bool open_pixels, bool open_vectors) {
  UNROLL for (dim_t v = open_vectors ? 1 : most_vectors; v < most_vectors + !open_vectors; v++) {
    if (open_vectors && v != vectors) continue;
    reach_t here = *reach;
    UNROLL for (dim_t size = most_pixels; size > 0; size--) {
      if (!OF(takes_size)(size, pixels, most_pixels, open_pixels)) continue;
      OF(libjit_tile_scattered)(to, start, input, weights, &here, size, v, block);
      to += size * v * W;
      here.row += (here.out_col + size) / here.out_width * here.row_stride;
      here.out_col = (here.out_col + size) % here.out_width;
      here.col = here.out_col * here.col_stride - here.left;
    }
  }
}

#endif
