/// The inner loops of convolutions and matrix products, one for each kind of tile.
#include "tile.h"

// LLVM would unroll the loops over taps for some processors (Cortex-A53 by eight, Zen by two), each time with the loop
// over a run inside, which is the one that takes the time.
#define ROLLED _Pragma("clang loop unroll(disable)")

INLINE void load_start(vf sums[MAX_TILE_PIXELS][MAX_TILE_VECTORS], const float *start, dim_t pixels, dim_t vectors) {
  UNROLL for (dim_t v = 0; v < vectors; v++) {
    vf first = LOAD_VECTOR(start + v * LANES);
    UNROLL for (dim_t p = 0; p < pixels; p++) sums[p][v] = first;
  }
}

INLINE void store_sums(float *to, vf sums[MAX_TILE_PIXELS][MAX_TILE_VECTORS], dim_t pixels, dim_t vectors) {
  UNROLL for (dim_t p = 0; p < pixels; p++) {
    UNROLL for (dim_t v = 0; v < vectors; v++) LIKE_VECTOR(to + (p * vectors + v) * LANES) = sums[p][v];
  }
}

/// The weights of one step.
INLINE void load_weights(vf weight[MAX_TILE_VECTORS], const float *from, dim_t vectors) {
  UNROLL for (dim_t v = 0; v < vectors; v++) weight[v] = LOAD_VECTOR(from + v * LANES);
}

/// Pixels at equal distances: one pointer serves all. Weights lie `block` floats apart from step to step.
KERNEL void libjit_tile_regular_f32(float *to, const float *start, const float *input, const float *weights,
                                    const reach_t *reach, dim_t pixels, dim_t vectors, dim_t block) {
  vf sums[MAX_TILE_PIXELS][MAX_TILE_VECTORS];
  dim_t pixel_step = reach->pixel_step, run = reach->run;
  dim_t ahead_step = reach->ahead_step;
  const float *ahead = reach->ahead;
  load_start(sums, start, pixels, vectors);
  ROLLED for (dim_t h = 0; h < reach->tap_rows; h++) {
    ROLLED for (dim_t w = 0; w < reach->taps; w++) {
      const float *from = input + h * reach->tap_row_step + w * reach->tap_step;
      ROLLED for (dim_t k = 0; k < run; k++) {
        if (LANES > 1) __builtin_prefetch(ahead, 0, 2);
        ahead += ahead_step;
        vf weight[MAX_TILE_VECTORS];
        load_weights(weight, weights, vectors);
        weights += block;
        UNROLL for (dim_t p = 0; p < pixels; p++) {
          vf x = splat(from[p * pixel_step + k]);
          UNROLL for (dim_t v = 0; v < vectors; v++) sums[p][v] = multiply_add(sums[p][v], x, weight[v]);
        }
      }
    }
  }
  store_sums(to, sums, pixels, vectors);
}

/// Pixels anywhere in an image, each with a pointer of its own, which is `zeros` where a tap lies outside.
KERNEL void libjit_tile_scattered_f32(float *to, const float *start, const float *input, const float *weights,
                                      const reach_t *reach, dim_t pixels, dim_t vectors, dim_t block) {
  vf sums[MAX_TILE_PIXELS][MAX_TILE_VECTORS];
  dim_t run = reach->run;
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
  load_start(sums, start, pixels, vectors);
  ROLLED for (dim_t h = 0; h < reach->tap_rows; h++) {
    ROLLED for (dim_t w = 0; w < reach->taps; w++) {
      const float *from[MAX_TILE_PIXELS];
      UNROLL for (dim_t p = 0; p < pixels; p++) {
        dim_t y = row[p] + h * reach->dilation_h, x = col[p] + w * reach->dilation_w;
        bool inside = (size_t)y < (size_t)reach->height && (size_t)x < (size_t)reach->width;
        from[p] = inside ? input + y * reach->tap_row_step + x * reach->tap_step : reach->zeros;
      }
      ROLLED for (dim_t k = 0; k < run; k++) {
        vf weight[MAX_TILE_VECTORS];
        load_weights(weight, weights, vectors);
        weights += block;
        UNROLL for (dim_t p = 0; p < pixels; p++) {
          vf x = splat(from[p][k]);
          UNROLL for (dim_t v = 0; v < vectors; v++) sums[p][v] = multiply_add(sums[p][v], x, weight[v]);
        }
      }
    }
  }
  store_sums(to, sums, pixels, vectors);
}
