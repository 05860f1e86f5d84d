/// As as_f32.h, of an input and weights in bf16, whose products are added up in f32.
#undef T
#undef F
#undef S
#undef V
#undef W
#undef D
#undef OF
#undef IN_HARDWARE
#undef MATRICES
#define T bf16_t
#define F bf16_t
#define S float
#define V vf
#define W LANES
#define D 2
#define OF(NAME) NAME##_bf16
#define IN_HARDWARE F32_IN_HARDWARE
#define MATRICES MATRICES_bf16
