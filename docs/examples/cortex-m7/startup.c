/* What a Cortex-M7 needs before main: a vector table, the floating-point unit switched on, memory set up. */
#include <stdint.h>

extern uint32_t stack_top, data_start, data_end, data_image, bss_start, bss_end; /* from the linker script */

int main(void);
void quit(int status);

void reset(void);
static void fault(void) { quit(1); }

/* The processor reads its stack pointer and the address of the first instruction here, then the handlers. */
__attribute__((section(".vectors"), used)) static const struct {
  uint32_t *stack;
  void (*handlers[15])(void);
} vectors = {&stack_top, {reset, fault, fault, fault, fault, fault}};

#define CPACR (*(volatile uint32_t *)0xE000ED88u)

void reset(void) {
  volatile uint32_t *to;
  const uint32_t *from = &data_image;
  CPACR |= 0xFu << 20; /* full access to coprocessors 10 and 11: the floating-point unit */
  __asm volatile("dsb\n isb");
  for (to = &data_start; to < &data_end; to++) *to = *from++;
  for (to = &bss_start; to < &bss_end; to++) *to = 0;
  quit(main());
}
