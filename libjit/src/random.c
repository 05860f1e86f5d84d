/// Random numbers from counters.
#include "kernels_gen.h"
#include "libjit.h"

enum { WORDS = 4, ROUNDS = 10 };

/// Philox 4x32-10 (Salmon, Moraes, Dror and Shaw 2011): every four elements come from a counter of their own.
KERNEL void libjit_random_bits_u32(uint32_t *restrict result, const ints_t *result_shape, const ints_t *key) {
  uint64_t n = (uint64_t)count(result_shape);
  for (uint64_t at = 0; at < n; at += WORDS) {
    uint32_t a = (uint32_t)(at / WORDS), b = (uint32_t)(at / WORDS >> 32), c = 0, d = 0;
    uint32_t first = (uint32_t)key->at[0], second = (uint32_t)key->at[1];
    UNROLL for (int round = 0; round < ROUNDS; round++) {
      uint64_t left = (uint64_t)a * 0xd2511f53u, right = (uint64_t)c * 0xcd9e8d57u;
      uint32_t next = (uint32_t)(right >> 32) ^ b ^ first;
      c = (uint32_t)(left >> 32) ^ d ^ second;
      a = next;
      b = (uint32_t)right;
      d = (uint32_t)left;
      first += 0x9e3779b9u;
      second += 0xbb67ae85u;
    }
    uint32_t words[WORDS] = {a, b, c, d};
    for (uint64_t i = 0; i < WORDS && at + i < n; i++) result[at + i] = words[i];
  }
}
