/// Pooling over N, spatial..., C with one to three spatial dimensions; pads = all begins, then all ends. A result may
/// be larger than the pads allow (`ceil`): what lies beyond them is never read and never counted. A unit is a row of the
/// result's pixels.
#include "kernels_gen.h"
#include "libjit.h"

/// One spatial dimension. The last of several windows `fits` into the image, whatever the extents are, where the result is no
/// larger than the pads allow and nothing is padded at the end. A single window may be larger than the image.
typedef struct {
  dim_t result, extent, kernel, stride, begin, end, step;
  bool fits;
} axis_t;

/// The geometry of a pool, always with three dimensions.
typedef struct {
  dim_t images, channels;
  axis_t axes[3];
} pool_t;

/// The taps of a window that lie inside the image, along one dimension. `counted` of the window's taps lie inside the
/// image or its pads.
typedef struct {
  dim_t first, taps, counted;
} taps_t;

/// A window: its image, its place in the result, and its range along each dimension.
typedef struct {
  dim_t image, place[3];
  taps_t ranges[3];
} window_t;

/// How far apart neighbours are: images, pixels along each dimension, channels.
typedef struct {
  dim_t image, pixels[3], channel;
} steps_t;

INLINE pool_t pool_of(const ints_t *result_shape, const ints_t *input_shape, const ints_t *kernels,
                      const ints_t *strides, const ints_t *pads, const ints_t *dilation, bool ceil) {
  dim_t rank = kernels->size;
  pool_t pool = {.images = result_shape->at[0], .channels = result_shape->at[rank + 1]};
  UNROLL for (dim_t i = 0; i < 3; i++) {
    dim_t own = i - (3 - rank);
    pool.axes[i] = own < 0 ? (axis_t){1, 1, 1, 1, 0, 0, 1, true}
                           : (axis_t){result_shape->at[own + 1], input_shape->at[own + 1], kernels->at[own],
                                      strides->at[own], pads->at[own], pads->at[own + rank], dilation->at[own],
                                      !ceil && pads->at[own + rank] == 0 && result_shape->at[own + 1] > 1};
  }
  return pool;
}

INLINE steps_t steps_of(const ints_t *strides) {
  dim_t rank = strides->size - 2;
  steps_t steps = {.image = strides->at[0], .channel = strides->at[rank + 1]};
  UNROLL for (dim_t i = 0; i < 3; i++) steps.pixels[i] = i < 3 - rank ? 0 : strides->at[i - (3 - rank) + 1];
  return steps;
}

INLINE dim_t count_pixels(pool_t pool) { return pool.axes[0].extent * pool.axes[1].extent * pool.axes[2].extent; }

/// How many of a window's taps, the first at `from`, lie before `limit`.
INLINE dim_t taps_before(axis_t axis, dim_t from, dim_t limit) {
  return limit <= from ? 0 : min_dim(axis.kernel, (limit - from + axis.step - 1) / axis.step);
}

INLINE taps_t range_at(axis_t axis, dim_t index) {
  dim_t from = index * axis.stride - axis.begin;
  bool fits = axis.fits || (axis.result - 1) * axis.stride + (axis.kernel - 1) * axis.step < axis.extent;
  bool whole = axis.begin == 0 && fits;
  if (whole) return (taps_t){from, axis.kernel, axis.kernel};
  dim_t skipped = taps_before(axis, from, 0);
  return (taps_t){from + skipped * axis.step, taps_before(axis, from, axis.extent) - skipped,
                   taps_before(axis, from, axis.extent + axis.end)};
}

/// Moves a window along its row of the result.
INLINE void move_to(window_t *window, pool_t pool, dim_t place) {
  window->place[2] = place;
  window->ranges[2] = range_at(pool.axes[2], place);
}

/// The first window of a row of the result.
INLINE window_t row_at(pool_t pool, dim_t row) {
  window_t window;
  UNROLL for (dim_t i = 1; i >= 0; i--) {
    window.place[i] = row % pool.axes[i].result;
    window.ranges[i] = range_at(pool.axes[i], window.place[i]);
    row /= pool.axes[i].result;
  }
  window.image = pool.images == 1 ? 0 : row;
  move_to(&window, pool, 0);
  return window;
}

/// Where the result of a window begins.
INLINE dim_t result_offset(steps_t steps, window_t window) {
  dim_t offset = window.image * steps.image;
  UNROLL for (dim_t i = 0; i < 3; i++) offset += window.place[i] * steps.pixels[i];
  return offset;
}

/// Where the tap (d, h, 0) of a window is in its image.
INLINE dim_t first_tap(pool_t pool, steps_t steps, window_t window, dim_t d, dim_t h) {
  dim_t deep = (window.ranges[0].first + d * pool.axes[0].step) * steps.pixels[0];
  dim_t high = (window.ranges[1].first + h * pool.axes[1].step) * steps.pixels[1];
  return deep + high + window.ranges[2].first * steps.pixels[2];
}

/// Whether no window to the left of one, or in the row of windows above it, has its tap (h, w) as well.
INLINE bool is_first_met(pool_t pool, dim_t h, dim_t w) {
  return h + pool.axes[1].stride >= pool.axes[1].kernel && w + pool.axes[2].stride >= pool.axes[2].kernel;
}

/// How far below a tap, in elements, the same tap of the next row of windows lies. That one is fetched with it, one row of
/// windows ahead, where prefetchers of processors do not follow: rows of windows that overlap read rows of the image again by
/// turns, and between pixels there may be channels of other tensors, as in a concat. 0 where they do, or without a next row.
INLINE dim_t next_row(pool_t pool, steps_t steps) {
  axis_t rows = pool.axes[1];
  bool overlap = rows.stride < rows.kernel, gaps = steps.pixels[2] != pool.channels;
  return LANES > 1 && rows.result > 1 && (overlap || gaps) ? rows.stride * steps.pixels[1] : 0;
}

/// Runs its body for each tap (h_, w_) inside the image, with OFFSET where it is in the image.
#define FOR_EACH_TAP(POOL, STEPS, WINDOW, OFFSET)                                                                      \
  for (dim_t d_ = 0; d_ < (WINDOW).ranges[0].taps; d_++)                                                               \
    for (dim_t h_ = 0; h_ < (WINDOW).ranges[1].taps; h_++)                                                             \
      for (dim_t w_ = 0, OFFSET = first_tap(POOL, STEPS, WINDOW, d_, h_); w_ < (WINDOW).ranges[2].taps;                \
           w_++, OFFSET += (POOL).axes[2].step * (STEPS).pixels[2])

/// Runs its body for each WINDOW of some rows.
#define FOR_EACH_WINDOW(POOL, FIRST, LAST, WINDOW)                                                                     \
  for (dim_t row_ = (FIRST); row_ < (LAST); row_++)                                                                    \
    for (window_t WINDOW = row_at(POOL, row_); (WINDOW).place[2] < (POOL).axes[2].result;                              \
         move_to(&(WINDOW), POOL, (WINDOW).place[2] + 1))

/// Vectors of channels that are reduced at once, in registers.
#define POOL_VECTORS 4

/// The same where a row of the result is one long window: fewer passes over its pixels, each of longer pieces of memory.
/// There are 32 registers of 64 bytes, and 16 of many others.
#define LONG_VECTORS (VECTOR_BYTES == 64 ? 12 : 8)

/// What a pool does with neighbouring channels, `VECTORS` vectors at a time: FIRST for a window without taps, COMBINE of
/// the vectors `best` and `x` for each tap, FINISH of the result. Elements are loaded as VX and computed on as V, of T.
#define POOL_VECTORS_OF(NAME, SUFFIX, T, V, X, VX, FIRST, COMBINE, FINISH)                                             \
  INLINE void NAME##_vectors_##SUFFIX(T *to, const X *image, pool_t pool, steps_t steps, window_t window,              \
                                      dim_t vectors, dim_t divisor) {                                                  \
    V sums[LONG_VECTORS];                                                                                              \
    dim_t below = next_row(pool, steps);                                                                               \
    UNROLL for (dim_t v = 0; v < vectors; v++) sums[v] = (FIRST) - (V){};                                              \
    FOR_EACH_TAP(pool, steps, window, tap) {                                                                           \
      UNROLL for (dim_t v = 0; v < vectors; v++) {                                                                     \
        V best = sums[v], x = __builtin_convertvector(*(const VX *)(image + tap + v * LANES_OF(T)), V);                \
        if (below && is_first_met(pool, h_, w_)) __builtin_prefetch(image + tap + v * LANES_OF(T) + below, 0, 2);      \
        sums[v] = COMBINE;                                                                                             \
      }                                                                                                                \
    }                                                                                                                  \
    UNROLL for (dim_t v = 0; v < vectors; v++) {                                                                       \
      V best = sums[v];                                                                                                \
      *(V *)(to + v * LANES_OF(T)) = FINISH;                                                                           \
    }                                                                                                                  \
  }                                                                                                                    \
                                                                                                                       \
  /* All channels, where they are neighbours and fill a vector at least, as many vectors at once each time; the last ones\
     overlap. How many channels these are. */                                                                          \
  INLINE dim_t NAME##_whole_##SUFFIX(T *to, const X *image, pool_t pool, steps_t into, steps_t out_of,                 \
                                     window_t window, dim_t divisor) {                                                 \
    dim_t full = pool.channels / LANES_OF(T), all = (pool.channels + LANES_OF(T) - 1) / LANES_OF(T);                   \
    if (libjit_small || full == 0 || into.channel != 1 || out_of.channel != 1) return 0;                               \
    dim_t most = pool.axes[2].result == 1 ? LONG_VECTORS : POOL_VECTORS;                                               \
    dim_t times = (all + most - 1) / most;                                                                             \
    if (times == 1 && all > full) times = 2; /* a single call would read beyond the last channel */                    \
    dim_t vectors = (all + times - 1) / times;                                                                         \
    for (dim_t c = 0; c < pool.channels; c += vectors * LANES_OF(T)) {                                                 \
      dim_t at = min_dim(c, pool.channels - vectors * LANES_OF(T));                                                    \
      NAME##_vectors_##SUFFIX(to + at, image + at, pool, out_of, window, vectors, divisor);                            \
    }                                                                                                                  \
    return pool.channels;                                                                                              \
  }

/// Windows of a row that are computed at once where all of them lie inside the image along it.
#define POOL_TILE 4

/// The longest row of a window that is computed with its neighbours', and the most rows.
#define POOL_TAPS 8

/// Whether that many windows from `place` on lie inside along an axis, and share elements.
INLINE bool lie_inside(axis_t axis, dim_t place) {
  dim_t from = place * axis.stride - axis.begin;
  dim_t to = from + (POOL_TILE - 1) * axis.stride + (axis.kernel - 1) * axis.step;
  // With strides few elements are shared, which takes longer than to load them where vectors are short.
  bool overlap = axis.stride <= (axis.kernel - 1) * axis.step && (axis.stride == 1 || VECTOR_BYTES == 64);
  return overlap && axis.kernel <= POOL_TAPS && place + POOL_TILE <= axis.result && from >= 0 && to < axis.extent;
}

/// Whether a window's row has the element `col` as a tap, counted from its first one.
INLINE bool has_tap(axis_t axis, dim_t col) {
  return col >= 0 && col % axis.step == 0 && col / axis.step < axis.kernel;
}

/// POOL_TILE neighbouring windows, as POOL_VECTORS_OF has one: elements that they share are loaded once. With CHECKED,
/// COMBINE may be wrong about NaN: then a vector that meets one, or an infinity, is computed again.
#define POOL_TILES_OF(NAME, SUFFIX, T, V, X, VX, FIRST, COMBINE, FINISH, CHECKED)                                      \
  INLINE V NAME##_row_##SUFFIX(V *sums, const X *row, pool_t pool, dim_t h, dim_t step, dim_t below) {                 \
    axis_t axis = pool.axes[2];                                                                                        \
    dim_t last = (POOL_TILE - 1) * axis.stride + (axis.kernel - 1) * axis.step;                                        \
    V odd = {};                                                                                                        \
    UNROLL for (dim_t col = 0; col <= last; col++) {                                                                   \
      V x = __builtin_convertvector(*(const VX *)(row + col * step), V);                                               \
      if (below && is_first_met(pool, h, col)) __builtin_prefetch(row + col * step + below, 0, 2);                     \
      bool shared = false;                                                                                             \
      UNROLL for (dim_t p = 0; p < POOL_TILE; p++) {                                                                   \
        if (!has_tap(axis, col - p * axis.stride)) continue;                                                           \
        V best = sums[p];                                                                                              \
        sums[p] = COMBINE;                                                                                             \
        shared = true;                                                                                                 \
      }                                                                                                                \
      if (CHECKED && shared) odd += x * 0;                                                                             \
    }                                                                                                                  \
    return odd;                                                                                                        \
  }                                                                                                                    \
                                                                                                                       \
  INLINE void NAME##_tile_##SUFFIX(T *to, const X *image, pool_t pool, steps_t into, steps_t out_of, window_t window,  \
                                   dim_t divisor) {                                                                    \
    dim_t step = out_of.pixels[2], below = next_row(pool, out_of), rows = window.ranges[1].taps;                       \
    V sums[POOL_TILE], odd = {};                                                                                       \
    UNROLL for (dim_t p = 0; p < POOL_TILE; p++) sums[p] = (FIRST) - (V){};                                            \
    for (dim_t d = 0; d < window.ranges[0].taps; d++) {                                                                \
      const X *row = image + first_tap(pool, out_of, window, d, 0);                                                    \
      dim_t down = pool.axes[1].step * out_of.pixels[1];                                                               \
      if (rows == pool.axes[1].kernel) /* as most have */                                                              \
        UNROLL for (dim_t h = 0; h < pool.axes[1].kernel; h++)                                                         \
          odd += NAME##_row_##SUFFIX(sums, row + h * down, pool, h, step, below);                                      \
      else                                                                                                             \
        for (dim_t h = 0; h < rows; h++) odd += NAME##_row_##SUFFIX(sums, row + h * down, pool, h, step, below);       \
    }                                                                                                                  \
    bool again = CHECKED && __builtin_reduce_or(odd != odd);                                                           \
    UNROLL for (dim_t p = 0; p < POOL_TILE; p++) {                                                                     \
      V best = sums[p];                                                                                                \
      *(V *)(to + p * into.pixels[2]) = FINISH;                                                                        \
    }                                                                                                                  \
    for (dim_t p = 0; again && p < POOL_TILE; p++, move_to(&window, pool, window.place[2] + 1))                        \
      NAME##_vectors_##SUFFIX(to + p * into.pixels[2], image, pool, out_of, window, 1, divisor);                       \
  }                                                                                                                    \
                                                                                                                       \
  /* All channels of such windows, if that is how they may be computed; how many windows these are. */                 \
  INLINE dim_t NAME##_tiles_##SUFFIX(T *to, const X *image, pool_t pool, steps_t into, steps_t out_of,                 \
                                     window_t window, dim_t divisor) {                                                 \
    bool whole = into.channel == 1 && out_of.channel == 1 && pool.channels >= LANES_OF(T);                             \
    if (libjit_small || !whole || pool.axes[1].kernel > POOL_TAPS) return 0;                                           \
    if (!lie_inside(pool.axes[2], window.place[2])) return 0;                                                          \
    for (dim_t c = 0; c < pool.channels; c += LANES_OF(T)) {                                                           \
      dim_t at = min_dim(c, pool.channels - LANES_OF(T));                                                              \
      NAME##_tile_##SUFFIX(to + at, image + at, pool, into, out_of, window, divisor);                                  \
    }                                                                                                                  \
    return POOL_TILE;                                                                                                  \
  }

/// The larger element of each pair; NaN wins over every number. `x != x` is false for integers. What is compared of an element,
/// and kept in registers, is its KEY, of which NUMBER makes the element.
#define MAX_POOL(SUFFIX, T, LOWEST, KEY, NUMBER)                                                                       \
  POOL_VECTORS_OF(max_pool, SUFFIX, T, v_##SUFFIX, T, v_##SUFFIX, (T)KEY(LOWEST),                                      \
                  ((KEY(x) > best) | (x != x)) ? KEY(x) : best, NUMBER(best))                                          \
  POOL_TILES_OF(max_pool, SUFFIX, T, v_##SUFFIX, T, v_##SUFFIX, (T)KEY(LOWEST), KEY(x) > best ? KEY(x) : best,         \
                NUMBER(best), (T)0.5 != 0)                                                                             \
                                                                                                                       \
  INLINE void raise_##SUFFIX(T *restrict result, const T *restrict input, dim_t channels, dim_t to, dim_t from) {      \
    for (dim_t c = 0; c < channels; c++) {                                                                             \
      T x = input[c * from], best = result[c * to];                                                                    \
      result[c * to] = ((KEY(x) > KEY(best)) | (x != x)) ? x : best;                                                   \
    }                                                                                                                  \
  }                                                                                                                    \
                                                                                                                       \
  KERNEL void libjit_max_pool_##SUFFIX(T *result, const T *input, const ints_t *result_shape,                          \
                                       const ints_t *input_shape, const ints_t *result_strides,                        \
                                       const ints_t *input_strides, const ints_t *kernels, const ints_t *strides,      \
                                       const ints_t *pads, const ints_t *dilation, bool ceil, dim_t first_unit,        \
                                       dim_t last_unit) {                                                              \
    pool_t pool = pool_of(result_shape, input_shape, kernels, strides, pads, dilation, ceil);                          \
    steps_t into = steps_of(result_strides), out_of = steps_of(input_strides);                                         \
    FOR_EACH_WINDOW(pool, first_unit, last_unit, window) {                                                             \
      const T *image = input + window.image * out_of.image;                                                            \
      T *to = result + result_offset(into, window);                                                                    \
      for (dim_t c = 0; libjit_small && c < pool.channels; c++) {                                                      \
        T best = LOWEST;                                                                                               \
        FOR_EACH_TAP(pool, out_of, window, tap) {                                                                      \
          T x = image[tap + c * out_of.channel];                                                                       \
          best = ((KEY(x) > KEY(best)) | (x != x)) ? x : best;                                                         \
        }                                                                                                              \
        to[c * into.channel] = best;                                                                                   \
      }                                                                                                                \
      if (libjit_small) continue;                                                                                      \
      dim_t windows = max_pool_tiles_##SUFFIX(to, image, pool, into, out_of, window, 1);                               \
      if (windows) {                                                                                                   \
        window.place[2] += windows - 1;                                                                                \
        continue;                                                                                                      \
      }                                                                                                                \
      dim_t done = max_pool_whole_##SUFFIX(to, image, pool, into, out_of, window, 1), rest = pool.channels - done;     \
      to += done * into.channel, image += done * out_of.channel;                                                       \
      for (dim_t c = 0; c < rest; c++) to[c * into.channel] = LOWEST;                                                  \
      FOR_EACH_TAP(pool, out_of, window, tap) raise_##SUFFIX(to, image + tap, rest, into.channel, out_of.channel);     \
    }                                                                                                                  \
  }

/// The first largest of `VECTORS` vectors of neighbouring channels, whose windows begin at `image`, and where it is: its
/// index in the input as if that were N, C, spatial. `first` is the index of the first channel's first pixel; a window
/// without a tap inside the image has the index -1. NaN is higher than every number.
#define ARGMAX_VECTORS(NAME, T, V, P, LOWEST)                                                                          \
  INLINE void NAME(T *to, int64_t *argmax, const T *image, pool_t pool, steps_t numbers, window_t window,              \
                   dim_t vectors, int64_t first) {                                                                     \
    enum { WIDTH = sizeof(P) / sizeof(int64_t) };                                                                      \
    V best[POOL_VECTORS];                                                                                              \
    P places[POOL_VECTORS];                                                                                            \
    bool empty = window.ranges[0].taps * window.ranges[1].taps * window.ranges[2].taps == 0;                           \
    int64_t pixel = empty ? -1 : first_tap(pool, numbers, window, 0, 0);                                               \
    UNROLL for (dim_t v = 0; v < vectors; v++) best[v] = (LOWEST) - (V){}, places[v] = pixel - (P){};                  \
    FOR_EACH_TAP(pool, numbers, window, tap) {                                                                         \
      UNROLL for (dim_t v = 0; v < vectors; v++) {                                                                     \
        V x = *(const V *)(image + tap * pool.channels + v * WIDTH);                                                   \
        __auto_type higher = ~(x <= best[v]) & (best[v] == best[v]);                                                   \
        best[v] = higher ? x : best[v];                                                                                \
        places[v] = __builtin_convertvector(higher, P) ? tap - (P){} : places[v];                                      \
      }                                                                                                                \
    }                                                                                                                  \
    dim_t pixels = count_pixels(pool);                                                                                 \
    UNROLL for (dim_t v = 0; v < vectors; v++) {                                                                       \
      *(V *)(to + v * WIDTH) = best[v];                                                                                \
      UNROLL for (dim_t lane = 0; lane < WIDTH; lane++)                                                                \
          argmax[v * WIDTH + lane] = empty ? -1 : first + (v * WIDTH + lane) * pixels + places[v][lane];               \
    }                                                                                                                  \
  }

/// As many channels in a vector as it has indices.
#define MAX_POOL_WITH_ARGMAX(SUFFIX, T, LOWEST)                                                                        \
  typedef T few_##SUFFIX __attribute__((ext_vector_type(LANES_OF(int64_t)), aligned(sizeof(T))));                      \
  typedef T one_##SUFFIX __attribute__((ext_vector_type(1), aligned(sizeof(T))));                                      \
  ARGMAX_VECTORS(argmax_few_##SUFFIX, T, few_##SUFFIX, v_i64, LOWEST)                                                  \
  ARGMAX_VECTORS(argmax_one_##SUFFIX, T, one_##SUFFIX, one_i64, LOWEST)                                                \
                                                                                                                       \
  KERNEL void libjit_max_pool_with_argmax_##SUFFIX##_i64(                                                              \
      T *result, int64_t *argmax, const T *input, const ints_t *result_shape, const ints_t *argmax_shape,              \
      const ints_t *input_shape, const ints_t *kernels, const ints_t *strides, const ints_t *pads,                     \
      const ints_t *dilation, bool ceil, dim_t first_unit, dim_t last_unit) {                                          \
    pool_t pool = pool_of(result_shape, input_shape, kernels, strides, pads, dilation, ceil);                          \
    dim_t channels = pool.channels, pixels = count_pixels(pool), block = POOL_VECTORS * LANES_OF(int64_t);             \
    steps_t numbers = {.pixels = {pool.axes[1].extent * pool.axes[2].extent, pool.axes[2].extent, 1}};                 \
    dim_t width = pool.axes[2].result * channels, plane = pool.axes[1].result * width;                                 \
    steps_t into = {.image = pool.axes[0].result * plane, .pixels = {plane, width, channels}};                         \
    FOR_EACH_WINDOW(pool, first_unit, last_unit, window) {                                                             \
      dim_t start = window.image * pixels * channels, c = 0;                                                           \
      dim_t place = result_offset(into, window);                                                                       \
      T *to = result + place;                                                                                          \
      int64_t *at = argmax + place;                                                                                    \
      const T *image = input + start;                                                                                  \
      for (; c + block <= channels; c += block)                                                                        \
        argmax_few_##SUFFIX(to + c, at + c, image + c, pool, numbers, window, POOL_VECTORS, start + c * pixels);       \
      for (; c + LANES_OF(int64_t) <= channels; c += LANES_OF(int64_t))                                                \
        argmax_few_##SUFFIX(to + c, at + c, image + c, pool, numbers, window, 1, start + c * pixels);                  \
      for (; c < channels; c++)                                                                                        \
        argmax_one_##SUFFIX(to + c, at + c, image + c, pool, numbers, window, 1, start + c * pixels);                  \
    }                                                                                                                  \
  }

/// Rows of windows whose taps are added up in T, and FINISH of `best`, such a sum. A mean knows its `divisor`: how many
/// taps lie in the image, or in its pads as well.
#define SUM_ROWS(NAME, SUFFIX, T, V, X, VX, FINISH)                                                                    \
  POOL_VECTORS_OF(NAME, SUFFIX, T, V, X, VX, 0, best + x, FINISH)                                                      \
  POOL_TILES_OF(NAME, SUFFIX, T, V, X, VX, 0, best + x, FINISH, false)                                                 \
                                                                                                                       \
  INLINE void NAME##_accumulate_##SUFFIX(T *restrict result, const X *restrict input, dim_t channels, dim_t to,        \
                                         dim_t from) {                                                                 \
    for (dim_t c = 0; c < channels; c++) result[c * to] += (T)input[c * from];                                         \
  }                                                                                                                    \
                                                                                                                       \
  INLINE void NAME##_rows_##SUFFIX(T *result, const X *input, pool_t pool, steps_t into, steps_t out_of,               \
                                   bool count_include_pads, dim_t first_unit, dim_t last_unit) {                       \
    FOR_EACH_WINDOW(pool, first_unit, last_unit, window) {                                                             \
      const X *image = input + window.image * out_of.image;                                                            \
      T *to = result + result_offset(into, window);                                                                    \
      dim_t divisor = 1;                                                                                               \
      UNROLL for (dim_t a = 0; a < 3; a++)                                                                             \
          divisor *= count_include_pads ? window.ranges[a].counted : window.ranges[a].taps;                            \
      divisor = max_dim(divisor, 1);                                                                                   \
      for (dim_t c = 0; libjit_small && c < pool.channels; c++) {                                                      \
        T best = 0;                                                                                                    \
        FOR_EACH_TAP(pool, out_of, window, tap) best += (T)image[tap + c * out_of.channel];                            \
        to[c * into.channel] = FINISH;                                                                                 \
      }                                                                                                                \
      if (libjit_small) continue;                                                                                      \
      dim_t windows = NAME##_tiles_##SUFFIX(to, image, pool, into, out_of, window, divisor);                           \
      if (windows) {                                                                                                   \
        window.place[2] += windows - 1;                                                                                \
        continue;                                                                                                      \
      }                                                                                                                \
      dim_t done = NAME##_whole_##SUFFIX(to, image, pool, into, out_of, window, divisor);                              \
      dim_t rest = pool.channels - done;                                                                               \
      to += done * into.channel, image += done * out_of.channel;                                                       \
      for (dim_t c = 0; c < rest; c++) to[c * into.channel] = 0;                                                       \
      FOR_EACH_TAP(pool, out_of, window, tap)                                                                          \
      NAME##_accumulate_##SUFFIX(to, image + tap, rest, into.channel, out_of.channel);                                 \
      for (dim_t c = 0; c < rest; c++) {                                                                               \
        T best = to[c * into.channel];                                                                                 \
        to[c * into.channel] = FINISH;                                                                                 \
      }                                                                                                                \
    }                                                                                                                  \
  }

#define AVG_POOL(SUFFIX, T)                                                                                            \
  SUM_ROWS(avg_pool, SUFFIX, T, v_##SUFFIX, T, v_##SUFFIX, best / (T)divisor)                                          \
                                                                                                                       \
  KERNEL void libjit_avg_pool_##SUFFIX(T *result, const T *input, const ints_t *result_shape,                          \
                                       const ints_t *input_shape, const ints_t *result_strides,                        \
                                       const ints_t *input_strides, const ints_t *kernels, const ints_t *strides,      \
                                       const ints_t *pads, const ints_t *dilation, bool ceil,                          \
                                       bool count_include_pads, dim_t first_unit, dim_t last_unit) {                   \
    pool_t pool = pool_of(result_shape, input_shape, kernels, strides, pads, dilation, ceil);                          \
    avg_pool_rows_##SUFFIX(result, input, pool, steps_of(result_strides), steps_of(input_strides),                     \
                           count_include_pads, first_unit, last_unit);                                                 \
  }

/// Sums wrap, which only unsigned ones may in C.
#define SUM_POOL(SUFFIX, X)                                                                                            \
  typedef X part_##SUFFIX __attribute__((ext_vector_type(LANES_OF(uint32_t)), aligned(sizeof(X))));                    \
  SUM_ROWS(sum_pool, SUFFIX, uint32_t, v_u32, X, part_##SUFFIX, best)                                                  \
                                                                                                                       \
  KERNEL void libjit_sum_pool_i32_##SUFFIX(int32_t *result, const X *input, const ints_t *result_shape,                \
                                           const ints_t *input_shape, const ints_t *result_strides,                    \
                                           const ints_t *input_strides, const ints_t *kernels, const ints_t *strides,  \
                                           const ints_t *pads, const ints_t *dilation, bool ceil, dim_t first_unit,    \
                                           dim_t last_unit) {                                                          \
    pool_t pool = pool_of(result_shape, input_shape, kernels, strides, pads, dilation, ceil);                          \
    sum_pool_rows_##SUFFIX((uint32_t *)result, input, pool, steps_of(result_strides), steps_of(input_strides), false,  \
                           first_unit, last_unit);                                                                     \
  }

#define LANES_OF(T) (VECTOR_BYTES > (dim_t)sizeof(T) ? VECTOR_BYTES / (dim_t)sizeof(T) : 1)
typedef float v_f32 __attribute__((ext_vector_type(LANES_OF(float)), aligned(4)));
typedef double v_f64 __attribute__((ext_vector_type(LANES_OF(double)), aligned(8)));
typedef int64_t v_i64 __attribute__((ext_vector_type(LANES_OF(int64_t)), aligned(8)));
typedef int64_t one_i64 __attribute__((ext_vector_type(1), aligned(8)));
typedef int8_t v_i8 __attribute__((ext_vector_type(VECTOR_BYTES), aligned(1)));
typedef int16_t v_i16 __attribute__((ext_vector_type(LANES_OF(int16_t)), aligned(2)));
typedef f16_t v_f16 __attribute__((ext_vector_type(LANES_OF(f16_t)), aligned(2)));
typedef bf16_t v_bf16 __attribute__((ext_vector_type(LANES_OF(bf16_t)), aligned(2)));
typedef uint8_t v_u8 __attribute__((ext_vector_type(VECTOR_BYTES), aligned(1)));
typedef uint32_t v_u32 __attribute__((ext_vector_type(LANES_OF(uint32_t)), aligned(4)));

#define SAME(X) (X)
MAX_POOL(f32, float, -__builtin_inff(), SAME, SAME)
MAX_POOL(f64, double, -__builtin_inf(), SAME, SAME)
MAX_POOL(i8, int8_t, INT8_MIN, SAME, SAME)
MAX_POOL(u8, uint8_t, 0, SAME, SAME)
MAX_POOL(i16, int16_t, INT16_MIN, SAME, SAME)

/// Integers in the order of the halves whose bits X are: those of negative ones are turned round. NaN is above INFINITE, which is
/// the highest number, whatever its sign. And the half of such a key.
#define KEY_OF_HALF(X, INFINITE) (((X) & 0x7fff) > (INFINITE) ? (X) | 0x8000 : (X) ^ (-((X) >> 15) | 0x8000))
#define HALF_OF_KEY(KEY) ((KEY) ^ (((KEY) >> 15) - 1 | 0x8000))
#define KEY_OF_F16(X) KEY_OF_HALF(X, 0x7c00)
#define KEY_OF_BF16(X) KEY_OF_HALF(X, 0x7f80)
MAX_POOL(f16, f16_t, 0xfc00, KEY_OF_F16, HALF_OF_KEY)
MAX_POOL(bf16, bf16_t, 0xff80, KEY_OF_BF16, HALF_OF_KEY)

MAX_POOL_WITH_ARGMAX(f32, float, -__builtin_inff())
MAX_POOL_WITH_ARGMAX(f64, double, -__builtin_inf())
MAX_POOL_WITH_ARGMAX(i8, int8_t, INT8_MIN)
MAX_POOL_WITH_ARGMAX(u8, uint8_t, 0)

AVG_POOL(f32, float)
AVG_POOL(f64, double)

SUM_POOL(i8, int8_t)
SUM_POOL(u8, uint8_t)
SUM_POOL(i16, int16_t)
SUM_POOL(u16, uint16_t)
