/// As as_f32.h, of vectors of half as many floats: only tiles are made of them.
#undef T
#undef F
#undef S
#undef V
#undef W
#undef D
#undef OF
#undef IN_HARDWARE
#undef MATRICES
#define T float
#define F float
#define S float
#define V half_vf
#define W (LANES / 2)
#define D 1
#define OF(NAME) NAME##_f32_half
#define IN_HARDWARE F32_IN_HARDWARE
#define MATRICES 0
