/// What bundles need around a network: the check of the weights, of the canaries, and of golden outputs.
#include "libjit.h"
#include "math.h"

/// CRC-32 (IEEE 802.3, reflected, as zlib's), a nibble at a time so that the table stays small.
uint32_t libjit_crc32(const uint8_t *data, dim_t size) {
  static const uint32_t table[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
                                     0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                     0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
  uint32_t crc = 0xffffffff;
  for (dim_t i = 0; i < size; i++) {
    crc ^= data[i];
    crc = crc >> 4 ^ table[crc & 15];
    crc = crc >> 4 ^ table[crc & 15];
  }
  return ~crc;
}

/// Canary bytes before and after an area; entry.py knows the number as GUARD_BYTES.
#define GUARD_BYTES 64

/// A byte that depends on where it stands, so that a shifted copy of a canary is none.
INLINE uint8_t canary(dim_t place) { return (uint8_t)(0xa5 ^ (uint8_t)(place * 29)); }

/// Writes the canaries of an area of `size` bytes, theirs included.
void libjit_guard_fill(uint8_t *area, dim_t size) {
  for (dim_t i = 0; i < GUARD_BYTES; i++) {
    area[i] = canary(i);
    area[size - GUARD_BYTES + i] = canary(i);
  }
}

/// Whether nobody has written over the canaries.
bool libjit_guard_intact(const uint8_t *area, dim_t size) {
  bool intact = true;
  for (dim_t i = 0; i < GUARD_BYTES; i++) intact &= area[i] == canary(i) && area[size - GUARD_BYTES + i] == canary(i);
  return intact;
}

/// Whether every float is within `tolerance`, relative to the largest golden one (and to 1e-4), of the golden one; NaN
/// matches NaN, infinity itself.
#define MATCHES(SUFFIX, T)                                                                                             \
  bool libjit_matches_##SUFFIX(const T *found, const T *golden, dim_t count, double tolerance) {                       \
    T scale = (T)1e-4;                                                                                                 \
    for (dim_t i = 0; i < count; i++) {                                                                                \
      T size = math_abs_##SUFFIX(golden[i]);                                                                           \
      if (size > scale && size < (T)__builtin_inf()) scale = size;                                                     \
    }                                                                                                                  \
    for (dim_t i = 0; i < count; i++) {                                                                                \
      bool both_nan = found[i] != found[i] && golden[i] != golden[i];                                                  \
      if (both_nan || found[i] == golden[i]) continue;                                                                 \
      if (!(math_abs_##SUFFIX(found[i] - golden[i]) <= (T)tolerance * scale)) return false;                            \
    }                                                                                                                  \
    return true;                                                                                                       \
  }

MATCHES(f32, float)
MATCHES(f64, double)

/// Whether two areas hold the same bytes: for golden outputs that are not floats.
bool libjit_matches_x8(const uint8_t *found, const uint8_t *golden, dim_t size) {
  for (dim_t i = 0; i < size; i++)
    if (found[i] != golden[i]) return false;
  return true;
}
