/// What test_kernels.py links with the kernels: an epilogue that keeps a record of what it is called with.
#include "libjit.h"

/// What an epilogue leaves in place of the elements it was passed: a kernel that touches them again is found out.
#define SPENT -12345.5f

/// `seen` and `times` are as large as `result`: what each element was when it was passed, and how often that was.
typedef struct {
  float *result, *seen;
  int32_t *times;
  dim_t size, ld;
  dim_t faults;  ///< calls that contradict the description in libjit/README.md
} record_t;

dim_t test_lanes(void) { return LANES; }

void test_epilogue(const void *env, dim_t offset, dim_t col, dim_t rows, dim_t cols) {
  record_t *record = (record_t *)env;
  bool positive = offset >= 0 && rows >= 1 && cols >= 1;
  if (!positive || offset % record->ld != col || col + cols > record->ld ||
      offset + (rows - 1) * record->ld + cols > record->size) {
    record->faults++;
    return;
  }
  for (dim_t r = 0; r < rows; r++) {
    for (dim_t c = 0; c < cols; c++) {
      dim_t at = offset + r * record->ld + c;
      record->seen[at] = record->result[at];
      record->times[at]++;
      record->result[at] = SPENT;
    }
  }
}
