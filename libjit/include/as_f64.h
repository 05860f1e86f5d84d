/// As as_f32.h, of doubles.
#undef T
#undef V
#undef W
#undef OF
#undef IN_HARDWARE
#define T double
#define V vd
#define W DOUBLE_LANES
#define OF(NAME) NAME##_f64
#define IN_HARDWARE F64_IN_HARDWARE
