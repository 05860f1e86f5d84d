/// What test_dots.py runs on other processors: tiles of 8-bit integers and of bf16 against the plainest loop there is.
#include "tile.h"

#define DEPTH 12
#define PIXELS 3
#define VECTORS 2
#define CHANNELS (VECTORS * LANES)

void libjit_tile_regular_i8(int32_t *to, const int32_t *start, const int8_t *input, const int8_t *weights,
                            const reach_t *reach, dim_t pixels, dim_t vectors, dim_t block);
void libjit_tile_regular_u8(int32_t *to, const int32_t *start, const uint8_t *input, const int8_t *weights,
                            const reach_t *reach, dim_t pixels, dim_t vectors, dim_t block);
void libjit_tile_scattered_i8(int32_t *to, const int32_t *start, const int8_t *input, const int8_t *weights,
                              const reach_t *reach, dim_t pixels, dim_t vectors, dim_t block);
void libjit_tile_scattered_u8(int32_t *to, const int32_t *start, const uint8_t *input, const int8_t *weights,
                              const reach_t *reach, dim_t pixels, dim_t vectors, dim_t block);

static uint32_t state = 1;

static uint32_t random_bits(void) { return (state = state * 1664525 + 1013904223) >> 8; }

/// How many sums are wrong: those of an input from an odd address on, of bytes from `low` to `high`, and weights from
/// `least` to `most`.
static int faults(int low, int high, int least, int most) {
  static union {
    int8_t with_sign[1 + PIXELS * DEPTH];
    uint8_t without[1 + PIXELS * DEPTH];
  } input;
  static int8_t weights[DEPTH * CHANNELS] __attribute__((aligned(64)));
  static int32_t sums[PIXELS * CHANNELS], start[CHANNELS];
  reach_t reach = {.tap_rows = 1, .taps = 1, .run = DEPTH, .pixel_step = DEPTH, .block_step = DEPTH * LANES,
                   .tap_row_step = DEPTH, .tap_step = DEPTH, .height = 1, .width = PIXELS, .out_width = PIXELS,
                   .col_stride = 1, .ahead = weights};
  for (int i = 0; i < 1 + PIXELS * DEPTH; i++) input.with_sign[i] = (int8_t)(low + random_bits() % (high - low + 1));
  for (int i = 0; i < DEPTH * CHANNELS; i++) weights[i] = (int8_t)(least + random_bits() % (most - least + 1));
  for (int c = 0; c < CHANNELS; c++) start[c] = (int32_t)random_bits();
  int wrong = 0;
  for (int kind = 0; kind < 4; kind++) {
    bool has_sign = kind % 2;
    const int8_t *with_sign = input.with_sign + 1;
    const uint8_t *without = input.without + 1;
    // A block for each vector: a tile spans two.
    switch (kind) {
    case 0: libjit_tile_regular_u8(sums, start, without, weights, &reach, PIXELS, VECTORS, LANES); break;
    case 1: libjit_tile_regular_i8(sums, start, with_sign, weights, &reach, PIXELS, VECTORS, LANES); break;
    case 2: libjit_tile_scattered_u8(sums, start, without, weights, &reach, PIXELS, VECTORS, LANES); break;
    case 3: libjit_tile_scattered_i8(sums, start, with_sign, weights, &reach, PIXELS, VECTORS, LANES); break;
    }
    for (int p = 0; p < PIXELS; p++) {
      for (int c = 0; c < CHANNELS; c++) {
        int32_t expected = start[c];
        for (int k = 0; k < DEPTH; k++) {
          int weight = weights[c / LANES * DEPTH * LANES + k / 4 * 4 * LANES + c % LANES * 4 + k % 4];
          expected += (has_sign ? with_sign[p * DEPTH + k] : without[p * DEPTH + k]) * weight;
        }
        wrong += sums[p * CHANNELS + c] != expected;
      }
    }
  }
  return wrong;
}

void libjit_tile_regular_bf16(float *to, const float *start, const bf16_t *input, const bf16_t *weights,
                              const reach_t *reach, dim_t pixels, dim_t vectors, dim_t block);
void libjit_tile_scattered_bf16(float *to, const float *start, const bf16_t *input, const bf16_t *weights,
                                const reach_t *reach, dim_t pixels, dim_t vectors, dim_t block);

/// A multiple of a quarter, as float and in bf16, which both are exactly.
static float quarter(bf16_t *half) {
  union {
    float number;
    uint32_t bits;
  } both = {.number = (float)((int)(random_bits() % 17) - 8) / 4};
  *half = (bf16_t)(both.bits >> 16);
  return both.number;
}

/// How many sums of a tile in bf16 are wrong: of an even depth, which may be no multiple of four.
static int faults_of_halves(int depth, int pixels) {
  static bf16_t input[PIXELS * DEPTH], weights[DEPTH * CHANNELS] __attribute__((aligned(64)));
  static float from[PIXELS * DEPTH], by[DEPTH * CHANNELS], sums[PIXELS * CHANNELS], start[CHANNELS];
  reach_t reach = {.tap_rows = 1, .taps = 1, .run = depth, .pixel_step = depth, .block_step = depth * LANES,
                   .tap_row_step = depth, .tap_step = depth, .height = 1, .width = pixels, .out_width = pixels,
                   .col_stride = 1, .ahead = weights};
  for (int i = 0; i < pixels * depth; i++) from[i] = quarter(input + i);
  for (int i = 0; i < depth * CHANNELS; i++) by[i] = quarter(weights + i);
  for (int c = 0; c < CHANNELS; c++) start[c] = (float)(random_bits() % 100);
  int wrong = 0;
  for (int scattered = 0; scattered < 2; scattered++) {
    if (pixels == PIXELS && scattered)
      libjit_tile_scattered_bf16(sums, start, input, weights, &reach, PIXELS, VECTORS, LANES);
    else if (pixels == PIXELS)
      libjit_tile_regular_bf16(sums, start, input, weights, &reach, PIXELS, VECTORS, LANES);
    else
      libjit_tile_regular_bf16(sums, start, input, weights, &reach, 2, VECTORS, LANES);
    for (int p = 0; p < pixels; p++) {
      for (int c = 0; c < CHANNELS; c++) {
        float expected = start[c];
        for (int k = 0; k < depth; k++)
          expected += from[p * depth + k] * by[c / LANES * depth * LANES + k / 2 * 2 * LANES + c % LANES * 2 + k % 2];
        wrong += sums[p * CHANNELS + c] != expected;
      }
    }
  }
  return wrong;
}

/// How many sums are wrong, of numbers at the ends of what there is and of any.
int check(void) {
  int wrong = faults(-128, -128, -128, -128) + faults(-1, -1, -128, -128) + faults(127, 127, -128, 127);
  for (int i = 0; i < 100; i++) wrong += faults(-128, 127, -128, 127);
  for (int i = 0; i < 20; i++) wrong += faults_of_halves(DEPTH, PIXELS) + faults_of_halves(DEPTH - 2, 2);
  return wrong;
}

/// Without a C library, which would have to be compiled for each processor first.
void *memcpy(void *to, const void *from, size_t size) {
  for (size_t i = 0; i < size; i++) ((char *)to)[i] = ((const char *)from)[i];
  return to;
}

void *memset(void *to, int byte, size_t size) {
  for (size_t i = 0; i < size; i++) ((char *)to)[i] = (char)byte;
  return to;
}

#if defined(__aarch64__)
#define EXIT(STATUS) __asm__ volatile("mov x0, %0\n mov x8, 93\n svc 0" ::"r"((long)(STATUS)) : "x0", "x8")
#elif defined(__arm__)
#define EXIT(STATUS) __asm__ volatile("mov r0, %0\n mov r7, 1\n svc 0" ::"r"(STATUS) : "r0", "r7")
#elif defined(__riscv)
#define EXIT(STATUS) __asm__ volatile("mv a0, %0\n li a7, 93\n ecall" ::"r"(STATUS) : "a0", "a7")
#elif defined(__powerpc64__)
#define EXIT(STATUS) __asm__ volatile("mr 3, %0\n li 0, 1\n sc" ::"r"((long)(STATUS)) : "3", "0")
#endif

#ifdef EXIT
void _start(void);
void _start(void) {
  EXIT(check() ? 1 : 0);
  __builtin_unreachable();
}
#endif
