/// What a source file that is read once for each kind of element calls it by. Here: floats.
#undef T
#undef V
#undef W
#undef OF
#undef IN_HARDWARE
#define T float               ///< an element
#define V vf                  ///< a vector of them
#define W LANES               ///< how many of them
#define OF(NAME) NAME##_f32   ///< the function of that name for this kind
#define IN_HARDWARE F32_IN_HARDWARE  ///< whether the processor computes with them
