/// As as_f32.h, of 8-bit integers with a sign.
#undef T
#undef F
#undef S
#undef V
#undef W
#undef D
#undef OF
#undef IN_HARDWARE
#undef MATRICES
#define T int8_t
#define F int8_t
#define S int32_t
#define V vi
#define W LANES
#define D 4
#define OF(NAME) NAME##_i8
#define IN_HARDWARE 1
#define MATRICES MATRICES_i8
