/// What test_kernels.py links with the kernels: inner loops that check who calls them, and an epilogue that keeps a
/// record of what it is called with.
#include "tile.h"

/// Of a function of a file that may not be linked with this.
#define WEAK __attribute__((weak))

#define TILES(SUFFIX, S, T, F)                                                                                         \
  void libjit_tile_regular_##SUFFIX(S *to, const S *start, const T *input, const F *weights, const reach_t *reach,     \
                                    dim_t pixels, dim_t vectors, dim_t block);                                         \
  void libjit_tile_scattered_##SUFFIX(S *to, const S *start, const T *input, const F *weights, const reach_t *reach,   \
                                      dim_t pixels, dim_t vectors, dim_t block);

TILES(f32, float, float, float)
WEAK void libjit_tile_chained_f32(float *to, const float *start, const float *input, const float *weights,
                                  const reach_t *reach, dim_t pixels, dim_t vectors, dim_t block);
#if HALF_TILES
TILES(f32_half, float, float, float)
#define HALF(KIND) libjit_tile_##KIND##_f32_half
#else
#define HALF(KIND) libjit_tile_##KIND##_f32
#endif
TILES(f64, double, double, double)
TILES(i8, int32_t, int8_t, int8_t)
TILES(u8, int32_t, uint8_t, int8_t)
TILES(bf16, float, bf16_t, bf16_t)
TILES(i16, int32_t, int16_t, int16_t)

/// The functions of patches, where winograd.c is linked with this; what `w` points to is its own affair.
#define PATCHES(SUFFIX)                                                                                                \
  WEAK void libjit_winograd_spread_##SUFFIX(void *to, const void *image, const void *w, dim_t first, dim_t count,      \
                                            dim_t high, dim_t wide, dim_t kernel_h, dim_t kernel_w);                   \
  WEAK void libjit_winograd_collect_##SUFFIX(void *to, const void *start, const void *sums, const void *w,             \
                                             dim_t count, dim_t vectors, dim_t high, dim_t wide, dim_t kernel_h,       \
                                             dim_t kernel_w, dim_t pool_h, dim_t pool_w);
PATCHES(f32)
PATCHES(i8)
PATCHES(u8)

typedef void (*spread_t)(void *to, const void *image, const void *w, dim_t first, dim_t count);
typedef void (*collect_t)(void *to, const void *start, const void *sums, const void *w, dim_t count, dim_t vectors);

/// Sums of `size` bytes in a vector.
dim_t test_lanes(dim_t size) { return size == 8 ? DOUBLE_LANES : LANES; }

/// One entry of a `tiles_t`: the only size that it may be called with, and how often it was.
typedef struct {
  dim_t pixels, vectors, calls, faults;
} loop_t;

/// A table of inner loops, in the order of `tiles_t`, and of the functions of patches.
typedef struct {
  tiles_t tiles;
  spread_t spread;
  collect_t collect;
  dim_t sizes[6];    ///< of a patch, of the kernel and of the pool
  dim_t block;
  dim_t kind;        ///< of the input: bytes of an element, negative where it has a sign that others lack; 2 of halves of vectors, 3 of bf16
  dim_t words;       ///< whether tiles multiply points of 16 bits, whatever the input is
  dim_t chained;     ///< whether tiles begin with sums of each pixel (strassen.c)
  loop_t loops[8];
} table_t;

/// The table of the product that is being computed: a `tile_t` has no argument to find it by.
static table_t *table;

#define LOOP(KIND, NUMBER)                                                                                             \
  static void loop_##NUMBER(void *sums, const void *start, const void *input, const void *weights,                     \
                            const reach_t *reach, dim_t pixels, dim_t vectors) {                                       \
    loop_t *loop = &table->loops[NUMBER];                                                                              \
    loop->calls++;                                                                                                     \
    loop->faults += pixels != loop->pixels || vectors != loop->vectors;                                                \
    if (table->chained) {                                                                                              \
      libjit_tile_chained_f32(sums, start, input, weights, reach, pixels, vectors, table->block);                      \
      return;                                                                                                          \
    }                                                                                                                  \
    if (table->words) {                                                                                                \
      libjit_tile_##KIND##_i16(sums, start, input, weights, reach, pixels, vectors, table->block);                     \
      return;                                                                                                          \
    }                                                                                                                  \
    switch (table->kind) {                                                                                             \
    case 8: libjit_tile_##KIND##_f64(sums, start, input, weights, reach, pixels, vectors, table->block); break;        \
    case 4: libjit_tile_##KIND##_f32(sums, start, input, weights, reach, pixels, vectors, table->block); break;        \
    case 3: libjit_tile_##KIND##_bf16(sums, start, input, weights, reach, pixels, vectors, table->block); break;       \
    case 2: HALF(KIND)(sums, start, input, weights, reach, pixels, vectors, table->block); break;                      \
    case 1: libjit_tile_##KIND##_u8(sums, start, input, weights, reach, pixels, vectors, table->block); break;         \
    case -1: libjit_tile_##KIND##_i8(sums, start, input, weights, reach, pixels, vectors, table->block); break;        \
    }                                                                                                                  \
  }

LOOP(regular, 0)
LOOP(regular, 1)
LOOP(regular, 2)
LOOP(regular, 3)
LOOP(scattered, 4)
LOOP(scattered, 5)
LOOP(scattered, 6)
LOOP(scattered, 7)

#define OF_KIND(NAME) (table->kind == 4 ? NAME##_f32 : table->kind == 1 ? NAME##_u8 : NAME##_i8)

static void spread(void *to, const void *image, const void *w, dim_t first, dim_t count) {
  const dim_t *sizes = table->sizes;
  OF_KIND(libjit_winograd_spread)(to, image, w, first, count, sizes[0], sizes[1], sizes[2], sizes[3]);
}

static void collect(void *to, const void *start, const void *sums, const void *w, dim_t count, dim_t vectors) {
  const dim_t *sizes = table->sizes;
  OF_KIND(libjit_winograd_collect)(to, start, sums, w, count, vectors, sizes[0], sizes[1], sizes[2], sizes[3], sizes[4],
                                   sizes[5]);
}

/// Fills in a table's functions, NULL where there are no pixels, and makes it the one that is used.
const tiles_t *test_tiles(table_t *of) {
  static const tile_t functions[8] = {loop_0, loop_1, loop_2, loop_3, loop_4, loop_5, loop_6, loop_7};
  tile_t *entries = (tile_t *)&of->tiles;
  for (int i = 0; i < 8; i++) entries[i] = of->loops[i].pixels ? functions[i] : NULL;
  of->spread = spread;
  of->collect = collect;
  table = of;
  return &of->tiles;
}

/// `seen` and `times` are as large as the result: what each element was when it was passed, and how often that was.
typedef struct {
  char *seen;
  int32_t *times;
  dim_t rows, cols;  ///< of the result
  dim_t block;       ///< columns of whole tiles, which lie one row after the other
  dim_t size;        ///< of an element, in bytes
  dim_t faults;      ///< calls that contradict the description in libjit/README.md
} record_t;

void test_epilogue(const void *env, const void *tile, dim_t ld, dim_t row, dim_t col, dim_t rows, dim_t cols) {
  record_t *record = (record_t *)env;
  bool positive = row >= 0 && col >= 0 && rows >= 1 && cols >= 1;
  if (!positive || row + rows > record->rows || col + cols > record->cols || ld < cols ||
      (cols == record->block && ld != cols)) {
    record->faults++;
    return;
  }
  for (dim_t r = 0; r < rows; r++) {
    for (dim_t c = 0; c < cols; c++) {
      dim_t at = (row + r) * record->cols + col + c;
      const char *element = (const char *)tile + (r * ld + c) * record->size;
      for (dim_t byte = 0; byte < record->size; byte++) record->seen[at * record->size + byte] = element[byte];
      record->times[at]++;
    }
  }
}
