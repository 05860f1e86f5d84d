/// The register tile of convolutions and matrix products.
///
/// A tile is rows x cols output pixels times some vectors of output channels, all held in registers. One step of
/// its inner loop loads a vector of weights per channel vector and broadcasts one input element per pixel. The
/// offsets of the pixels are constants, so the loop has one pointer into the input and one into the weights.
/// A matrix product is the case of one row: its pixels are the rows of the left operand.
#ifndef LIBJIT_TILE_H
#define LIBJIT_TILE_H

#include "libjit.h"

/// Bounds of the tiles that glowpy/backends/cpu/tiles.py may choose.
#define MAX_TILE_PIXELS 32
#define MAX_TILE_VECTORS 8

/// Bytes of input, and of weights, that we count on finding again in the second-level cache.
#define CACHED_BYTES (256 * 1024)

/// Floats that one prefetch fetches.
#define LINE 16

typedef bool mask_t __attribute__((ext_vector_type(LANES)));
typedef float masked_t __attribute__((ext_vector_type(LANES)));
typedef int32_t vi __attribute__((vector_size(VECTOR_BYTES)));

INLINE vf splat(float x) { return x - (vf){}; }

/// Lanes [0, lanes) set.
INLINE mask_t first_lanes(dim_t lanes) {
  vi lane;
  UNROLL for (int i = 0; i < LANES; i++) lane[i] = i;
  return __builtin_convertvector(lane < (int32_t)lanes, mask_t);
}

/// The first `lanes` floats at `pointer`, zeros after them; reads nothing beyond.
INLINE vf load_first(const float *pointer, dim_t lanes) {
  if (lanes <= 0) return (vf){};
  if (lanes >= LANES) return LOAD_VECTOR(pointer);
  return (vf)__builtin_masked_load(first_lanes(lanes), pointer, (masked_t)(vf){});
}

/// Stores the first `lanes` floats of `vector`; writes nothing beyond.
INLINE void store_first(float *pointer, vf vector, dim_t lanes) {
  if (lanes <= 0) return;
  if (lanes >= LANES)
    LIKE_VECTOR(pointer) = vector;
  else
    __builtin_masked_store(first_lanes(lanes), (masked_t)vector, pointer);
}

/// A grid of output pixels of one image (and group), and where their operands lie. Steps count floats.
typedef struct {
  dim_t height, width;       ///< output pixels
  dim_t row_step, col_step;  ///< input, from one output pixel to the next
  dim_t taps_h, tap_h_step;  ///< input rows under one pixel
  dim_t taps_w, tap_w_step;  ///< pieces of each input row
  dim_t run;                 ///< contiguous floats of each piece
  dim_t channels;            ///< output channels, of which `NR` share a block of weights
  dim_t ld;                  ///< result, from one pixel to the next
  dim_t weight_step;         ///< weights, from one `k` to the next
} grid_t;

typedef struct {
  dim_t rows, cols, vectors;
} tile_t;

/// Weights to fetch into the second-level cache for the tiles to come, while this one computes: `step` floats for
/// each step of the inner loop. A step of 0 fetches nothing new.
typedef struct {
  bool used;  ///< a constant: whether there is such code at all
  const float *from;
  dim_t step;
} ahead_t;

/// Computes one tile; `valid` of its channels exist. `bias` may be NULL. The weights of missing channels are read if
/// `padded_weights` (packed weights are filled with zeros), else masked.
INLINE void multiply_tile(float *result, const float *input, const float *weights, const float *bias, grid_t grid,
                          tile_t tile, dim_t valid, bool padded_weights, ahead_t ahead) {
  vf sums[MAX_TILE_PIXELS][MAX_TILE_VECTORS];
  UNROLL for (dim_t v = 0; v < tile.vectors; v++) {
    vf start = bias ? load_first(bias + v * LANES, valid - v * LANES) : (vf){};
    UNROLL for (dim_t pixel = 0; pixel < tile.rows * tile.cols; pixel++) sums[pixel][v] = start;
  }
  for (dim_t h = 0; h < grid.taps_h; h++) {
    for (dim_t w = 0; w < grid.taps_w; w++) {
      const float *from = input + h * grid.tap_h_step + w * grid.tap_w_step;
      const float *with = weights + (h * grid.taps_w + w) * grid.run * grid.weight_step;
#pragma clang loop unroll(disable)
      for (dim_t k = 0; k < grid.run; k++) {
        if (ahead.used) {
          __builtin_prefetch(ahead.from, 0, 2);
          ahead.from += ahead.step;
        }
        vf weight[MAX_TILE_VECTORS];
        UNROLL for (dim_t v = 0; v < tile.vectors; v++) {
          const float *at = with + k * grid.weight_step + v * LANES;
          weight[v] = padded_weights ? LOAD_VECTOR(at) : load_first(at, valid - v * LANES);
        }
        UNROLL for (dim_t r = 0; r < tile.rows; r++) {
          UNROLL for (dim_t c = 0; c < tile.cols; c++) {
            vf x = splat(from[r * grid.row_step + c * grid.col_step + k]);
            UNROLL for (dim_t v = 0; v < tile.vectors; v++) sums[r * tile.cols + c][v] += x * weight[v];
          }
        }
      }
    }
  }
  UNROLL for (dim_t r = 0; r < tile.rows; r++) {
    UNROLL for (dim_t c = 0; c < tile.cols; c++) {
      float *to = result + (r * grid.width + c) * grid.ld;
      UNROLL for (dim_t v = 0; v < tile.vectors; v++)
        store_first(to + v * LANES, sums[r * tile.cols + c][v], valid - v * LANES);
    }
  }
}

/// What does not change from tile to tile. `offset` is where the grid begins in `result`, `col` its first column.
typedef struct {
  float *result;
  const float *input, *weights, *bias;
  dim_t offset, col;
  bool padded_weights;
  epilogue_t epilogue;
  const void *env;
  dim_t fetch_step;   ///< floats of weights to fetch ahead at each step of the inner loop, or 0
  const float *next;  ///< the block of weights after this one, or NULL
  dim_t fetched;      ///< how many of its floats were fetched
} work_t;

/// Computes and finishes the tile whose first pixel is (row, pixel) and whose first channel is `channel`.
INLINE void finish_tile(work_t *work, grid_t grid, tile_t tile, dim_t row, dim_t pixel, dim_t channel, dim_t valid) {
  dim_t k = grid.taps_h * grid.taps_w * grid.run;
  dim_t offset = work->offset + (row * grid.width + pixel) * grid.ld + channel;
  const float *weights = work->padded_weights ? work->weights + channel * k : work->weights + channel;
  bool more = work->next && work->fetched < k * grid.weight_step;
  ahead_t ahead = {work->fetch_step > 0, more ? work->next + work->fetched : weights, more ? work->fetch_step : 0};
  work->fetched += k * work->fetch_step;
  multiply_tile(work->result + offset, work->input + row * grid.row_step + pixel * grid.col_step, weights,
                work->bias ? work->bias + channel : NULL, grid, tile, valid, work->padded_weights, ahead);
  if (work->epilogue)
    for (dim_t r = 0; r < tile.rows; r++)
      work->epilogue(work->env, offset + r * grid.width * grid.ld, work->col + channel, tile.cols, valid);
}

/// Tiles of `tile.rows` rows from `row` on, over the pixels [first, last).
INLINE void multiply_line(work_t *work, grid_t grid, tile_t tile, dim_t row, dim_t first, dim_t last, dim_t channel,
                          dim_t valid) {
  dim_t pixel = first;
  for (; pixel + tile.cols <= last; pixel += tile.cols) finish_tile(work, grid, tile, row, pixel, channel, valid);
  tile.cols = grid.width % tile.cols;
  if (tile.cols && pixel < last) finish_tile(work, grid, tile, row, pixel, channel, valid);
}

/// A range of rows and pixels; only at the grid's end is it not a whole number of tiles.
typedef struct {
  dim_t first_row, last_row, first_pixel, last_pixel;
} slab_t;

/// One block of channels over one slab.
INLINE void multiply_slab(work_t *work, grid_t grid, tile_t tile, slab_t slab, dim_t channel, dim_t valid) {
  dim_t after = channel + grid.weight_step;
  work->next = after < grid.channels ? work->weights + after * grid.taps_h * grid.taps_w * grid.run : NULL;
  work->fetched = 0;
  tile.vectors = (valid + LANES - 1) / LANES;
  dim_t row = slab.first_row;
  for (; row + tile.rows <= slab.last_row; row += tile.rows)
    multiply_line(work, grid, tile, row, slab.first_pixel, slab.last_pixel, channel, valid);
  tile.rows = grid.height % tile.rows;
  if (tile.rows && row < slab.last_row)
    multiply_line(work, grid, tile, row, slab.first_pixel, slab.last_pixel, channel, valid);
}

INLINE dim_t round_down(dim_t n, dim_t step) { return max_dim(n / step, 1) * step; }

/// In how many slabs to walk the grid. Each slab passes over all weights, each block of channels over its slab's
/// input; what does not stay in cache is fetched again, and we take the order that fetches less.
INLINE dim_t count_slabs(grid_t grid, dim_t block) {
  dim_t span = grid.height > 1 ? grid.height * grid.row_step : grid.width * grid.col_step;
  dim_t k = grid.taps_h * grid.taps_w * grid.run, used = min_dim(span, grid.height * grid.width * k);
  dim_t input = used * (dim_t)sizeof(float), slabs = input / CACHED_BYTES + 1;
  dim_t weights = k * grid.channels * (dim_t)sizeof(float);
  dim_t blocks = (grid.channels + block - 1) / block;
  dim_t whole = weights + (input > CACHED_BYTES ? blocks * input : input);
  dim_t sliced = input + (weights > CACHED_BYTES ? slabs * weights : weights);
  return sliced < whole ? slabs : 1;
}

/// The whole grid: slabs of pixels, in each all blocks of channels, in each all tiles.
INLINE void multiply_grid(work_t work, grid_t grid, tile_t tile) {
  dim_t block = tile.vectors * LANES, slabs = count_slabs(grid, block);
  dim_t rows = grid.height > 1 ? round_down(grid.height / slabs, tile.rows) : tile.rows;
  dim_t pixels = grid.height > 1 ? grid.width : round_down(grid.width / slabs, tile.cols);
  if (slabs == 1) rows = grid.height, pixels = grid.width;
  // Weights of a cold network come from memory: spread the fetching of a block over all tiles of the block before it.
  dim_t weight_bytes = grid.taps_h * grid.taps_w * grid.run * grid.channels * (dim_t)sizeof(float);
  dim_t tiles = ((grid.height + tile.rows - 1) / tile.rows) * ((grid.width + tile.cols - 1) / tile.cols);
  if (work.padded_weights && slabs == 1 && weight_bytes > CACHED_BYTES && tiles > 1)
    work.fetch_step = min_dim((block + tiles - 1) / tiles, LINE);
  for (dim_t row = 0; row < grid.height; row += rows) {
    for (dim_t pixel = 0; pixel < grid.width; pixel += pixels) {
      slab_t slab = {row, min_dim(row + rows, grid.height), pixel, min_dim(pixel + pixels, grid.width)};
      dim_t channel = 0;
      for (; channel + block <= grid.channels; channel += block)
        multiply_slab(&work, grid, tile, slab, channel, block);
      if (grid.channels % block) multiply_slab(&work, grid, tile, slab, channel, grid.channels % block);
    }
  }
}

#endif
