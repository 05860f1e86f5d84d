/// As as_f32.h, of integers of 16 bits: the points of patches of 8-bit ones.
#undef T
#undef F
#undef S
#undef V
#undef W
#undef D
#undef OF
#undef IN_HARDWARE
#undef MATRICES
#define T int16_t
#define F int16_t
#define S int32_t
#define V vi
#define W LANES
#define D 2
#define OF(NAME) NAME##_i16
#define IN_HARDWARE 1
#define MATRICES 0
