/* Runs the network and prints its outputs through the debugger (semihosting); returns 0 if all went well. */
#include <stdint.h>

#include "mlp.h"

static _Alignas(MLP_ALIGNMENT) uint8_t mutable_area[MLP_MUTABLE_SIZE];
static _Alignas(MLP_ALIGNMENT) uint8_t activations[MLP_ACTIVATIONS_SIZE + 1];

enum { SYS_WRITE0 = 0x04, SYS_EXIT = 0x18, STOPPED_WELL = 0x20026, STOPPED_BADLY = 0x20023 };

/* Asks the debugger or emulator for something: the operation in r0, its argument in r1. */
static void semihosting(uint32_t operation, uintptr_t argument) {
  register uint32_t r0 __asm("r0") = operation;
  register uintptr_t r1 __asm("r1") = argument;
  __asm volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}

static void print(const char *text) { semihosting(SYS_WRITE0, (uintptr_t)text); }

void quit(int status) {
  semihosting(SYS_EXIT, status ? STOPPED_BADLY : STOPPED_WELL);
  for (;;) continue;
}

/* A number from 0 up to 10, with six decimals. */
static void print_number(float number) {
  char text[] = " 0.000000";
  uint32_t millionths = (uint32_t)(number * 1e6f + 0.5f);
  int place;
  for (place = 8; place > 0; place--) {
    if (place == 2) continue; /* the point */
    text[place] = (char)('0' + millionths % 10);
    millionths /= 10;
  }
  print(text);
}

int main(void) {
  float *x = mlp_input_x(mutable_area);
  const float *y = mlp_output_y(mutable_area);
  unsigned i;
  if (mlp_selftest(mlp_constants, mutable_area, activations)) {
    print("the self-test failed\n");
    return 1;
  }
  for (i = 0; i < MLP_X_COUNT; i++) x[i] = (float)(i % 17) / 16;
  if (mlp(mlp_constants, mutable_area, activations)) {
    print("the network failed\n");
    return 1;
  }
  print("y:");
  for (i = 0; i < MLP_Y_COUNT; i++) print_number(y[i]);
  print("\n");
  return 0;
}
