/// What a source file that is read once for each kind of product calls its elements by. Here: products of floats.
#undef T
#undef F
#undef S
#undef V
#undef W
#undef D
#undef OF
#undef IN_HARDWARE
#undef MATRICES
#define T float               ///< an element of the input
#define F float               ///< an element of the filter, or of the right side
#define S float               ///< a sum of products
#define V vf                  ///< a vector of sums
#define W LANES               ///< how many of them
#define D 1                   ///< neighbouring elements of the input that a step of the inner loop multiplies
#define OF(NAME) NAME##_f32   ///< the function of that name for this kind
#define IN_HARDWARE F32_IN_HARDWARE  ///< whether the processor computes with them
#define MATRICES 0  ///< whether there are instructions for several pixels and lanes
