/// As as_f32.h, of doubles.
#undef T
#undef F
#undef S
#undef V
#undef W
#undef D
#undef OF
#undef IN_HARDWARE
#undef MATRICES
#define T double
#define F double
#define S double
#define V vd
#define W DOUBLE_LANES
#define D 1
#define OF(NAME) NAME##_f64
#define IN_HARDWARE F64_IN_HARDWARE
#define MATRICES 0
