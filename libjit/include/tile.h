/// The register tile of convolutions and matrix products.
///
/// A tile is some output pixels times some vectors of output channels, all held in registers. One step of its inner
/// loop loads a vector of weights for each channel vector and broadcasts one input element for each pixel. A matrix
/// product is the case where the pixels are the rows of the left operand.
///
/// How many pixels and vectors are constants, and so is which kind of tile it is; all else is an argument. So the code
/// generator writes one function for each size and kind, which all layers of a network call through `tiles_t`.
#ifndef LIBJIT_TILE_H
#define LIBJIT_TILE_H

#include "libjit.h"

/// Bounds of the tiles that glowpy/backends/cpu/strategy may choose.
#define MAX_TILE_PIXELS 32
#define MAX_TILE_VECTORS 8
#define MAX_TILE_SUMS 32  ///< pixels times vectors
#define MAX_DEPTHWISE_PIXELS 8
/// Tiles of so many sums multiply for long enough at each step to fetch two lines.
#define MANY_SUMS 14

/// Where a tile reads. Steps count elements.
typedef struct {
  dim_t tap_rows, tap_row_step;  ///< input rows under one pixel
  dim_t taps, tap_step;          ///< pieces of each of these rows
  dim_t run;                     ///< neighbouring elements of each piece
  dim_t pixel_step;              ///< input, from one output pixel to the next
  dim_t block_step;              ///< weights, from one packed block to the next
  const void *ahead;             ///< weights to fetch into the second-level cache for the tiles to come
  dim_t ahead_step;              ///< how many of them for each step; none if 0
  dim_t ahead_also;              ///< what lies so far after it is fetched as well, by tiles of MANY_SUMS
  // What only scattered tiles need:
  const void *zeros;         ///< `run` of them, in place of what lies outside the image
  dim_t height, width;       ///< of the input
  dim_t row, col, out_width; ///< where the first input row and column under the tile's first pixel lie
  dim_t row_stride, col_stride, dilation_h, dilation_w;
  dim_t out_col; ///< column of the first pixel in the result
  dim_t left;    ///< what the first column of the result begins with
  // What only chained tiles (strassen.c) need:
  dim_t start_step;          ///< from what one pixel begins with to that of the next
  const void *subtracted;    ///< from weights, or NULL
  void *difference;          ///< where what is left of them goes
} reach_t;

/// Computes one tile: sums[pixel][vector] = start[vector] + inputs times weights, all of one kind of element.
typedef void (*tile_t)(void *sums, const void *start, const void *input, const void *weights, const reach_t *reach,
                       dim_t pixels, dim_t vectors);

/// Computes a tile and finishes it: what an epilogue does with sums, while they are in registers. The tile's first element is
/// that of row `row` and column `col` of the result.
typedef void (*finished_t)(const void *env, const void *start, const void *input, const void *weights,
                           const reach_t *reach, dim_t row, dim_t col);

/// The tiles of one product, for whole and for remaining pixels, whole and remaining vectors; NULL where there is none.
struct tiles {
  tile_t regular[2][2];   ///< pixels that lie `pixel_step` apart, with all that they read inside the image
  tile_t scattered[2][2]; ///< any neighbouring pixels of an image, in several rows and at its edges
  finished_t finished;    ///< in place of a whole regular one whose vectors are all valid, and its epilogue
};

#endif
