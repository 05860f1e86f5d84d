/// The inner loops of convolutions and matrix products, one for each kind of tile, of floats and of doubles: this file
/// reads itself once for each.
#ifndef T
#include "tile.h"

// Loops are ROLLED: LLVM would unroll those over taps for some processors (Cortex-A53 by eight, Zen by two), each time with the loop
// over a run inside, which is the one that takes the time.

/// sum + x * y, rounded once where the target can. LLVM joins the two by itself, but not where it takes both together to
/// be slower: on 32-bit Arm it only has chains of sums in mind, and a tile has none.
#if defined(__ARM_NEON) && defined(__ARM_FEATURE_FMA)
#define MULTIPLY_ADD(SUM, X, Y) __builtin_elementwise_fma(X, Y, SUM)
#else
#define MULTIPLY_ADD(SUM, X, Y) ((SUM) + (X) * (Y))
#endif

/// X in every lane.
#define SPLAT(X) ((X) - (V){})

#include "as_f32.h"
#include "tile.c"
#include "as_f64.h"
#include "tile.c"
#else

INLINE void OF(load_start)(V sums[MAX_TILE_PIXELS][MAX_TILE_VECTORS], const T *start, dim_t pixels, dim_t vectors) {
  UNROLL for (dim_t v = 0; v < vectors; v++) {
    V first = *(const V *)(start + v * W);
    UNROLL for (dim_t p = 0; p < pixels; p++) sums[p][v] = first;
  }
}

INLINE void OF(store_sums)(T *to, V sums[MAX_TILE_PIXELS][MAX_TILE_VECTORS], dim_t pixels, dim_t vectors) {
  UNROLL for (dim_t p = 0; p < pixels; p++) {
    UNROLL for (dim_t v = 0; v < vectors; v++) *(V *)(to + (p * vectors + v) * W) = sums[p][v];
  }
}

/// The weights of one step, `from` one packed block of `block` elements and those after it.
INLINE void OF(load_weights)(V weight[MAX_TILE_VECTORS], const T *from, dim_t vectors, dim_t block, dim_t block_step) {
  UNROLL for (dim_t v = 0; v < vectors; v++) {
    dim_t at = v * W / block * block_step + v * W % block;
    weight[v] = *(const V *)(from + at);
  }
}

/// Pixels at equal distances: one pointer serves all. Weights lie `block` elements apart from step to step; a tile may
/// span several packed blocks.
KERNEL void OF(libjit_tile_regular)(T *to, const T *start, const T *input, const T *weights, const reach_t *reach,
                                    dim_t pixels, dim_t vectors, dim_t block) {
  V sums[MAX_TILE_PIXELS][MAX_TILE_VECTORS];
  dim_t pixel_step = reach->pixel_step, run = reach->run, block_step = reach->block_step;
  dim_t ahead_step = reach->ahead_step;
  const T *ahead = reach->ahead;
  OF(load_start)(sums, start, pixels, vectors);
  ROLLED for (dim_t h = 0; h < reach->tap_rows; h++) {
    ROLLED for (dim_t w = 0; w < reach->taps; w++) {
      const T *from = input + h * reach->tap_row_step + w * reach->tap_step;
      ROLLED for (dim_t k = 0; k < run; k++) {
        if (LANES > 1) __builtin_prefetch(ahead, 0, 2);
        ahead += ahead_step;
        V weight[MAX_TILE_VECTORS];
        OF(load_weights)(weight, weights, vectors, block, block_step);
        weights += block;
        UNROLL for (dim_t p = 0; p < pixels; p++) {
          V x = SPLAT(from[p * pixel_step + k]);
          UNROLL for (dim_t v = 0; v < vectors; v++) sums[p][v] = MULTIPLY_ADD(sums[p][v], x, weight[v]);
        }
      }
    }
  }
  OF(store_sums)(to, sums, pixels, vectors);
}

/// Pixels anywhere in an image, each with a pointer of its own, which is `zeros` where a tap lies outside.
KERNEL void OF(libjit_tile_scattered)(T *to, const T *start, const T *input, const T *weights, const reach_t *reach,
                                      dim_t pixels, dim_t vectors, dim_t block) {
  V sums[MAX_TILE_PIXELS][MAX_TILE_VECTORS];
  dim_t run = reach->run, block_step = reach->block_step;
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
      ROLLED for (dim_t k = 0; k < run; k++) {
        V weight[MAX_TILE_VECTORS];
        OF(load_weights)(weight, weights, vectors, block, block_step);
        weights += block;
        UNROLL for (dim_t p = 0; p < pixels; p++) {
          V x = SPLAT(from[p][k]);
          UNROLL for (dim_t v = 0; v < vectors; v++) sums[p][v] = MULTIPLY_ADD(sums[p][v], x, weight[v]);
        }
      }
    }
  }
  OF(store_sums)(to, sums, pixels, vectors);
}

#endif
