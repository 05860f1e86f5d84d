/// As as_f32.h, of 8-bit integers without a sign, times such that have one.
#undef T
#undef F
#undef S
#undef V
#undef W
#undef D
#undef OF
#undef IN_HARDWARE
#undef MATRICES
#define T uint8_t
#define F int8_t
#define S int32_t
#define V vi
#define W LANES
#define D 4
#define OF(NAME) NAME##_u8
#define IN_HARDWARE 1
#define MATRICES MATRICES_u8
