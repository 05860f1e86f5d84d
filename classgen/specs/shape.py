"""Moving elements, and the instructions that manage memory."""

from classgen.dsl import WIDTHS, InstOnly, NodeOnly, Op, dim, dimensions, dims, integer, ints, real

NodeOnly("Save", "Writes input to the placeholder output; the result of a function.", inputs=["input", "output"], results=[], traits=["side_effect", "codes"], quant="same")
NodeOnly("Reshape", "The same elements, in row-major order, in another shape.", inputs=["input"], traits=["typed", "shape_only", "codes"], quant="same")
NodeOnly("Concat", "The inputs one after the other along dimension `axis`.", inputs=["inputs"], attrs=[integer("axis")], traits=["axes", "shape_only", "codes"], variadic=True, quant="rule")
NodeOnly("Slice", "result[i] = input[starts + i * steps] in each dimension; steps may be negative.", inputs=["input"], attrs=[dimensions("starts", symbolic=True), dimensions("steps")], traits=["typed", "shape_only", "dimensionwise", "codes"], quant="same")
NodeOnly("Pad", "input with `value` around it: pads are the begins, then the ends, of all dimensions; negative pads crop. A pad of a quantized input is the element nearest to the number `value`; the channel axis is not padded.", inputs=["input"], attrs=[dimensions("pads", symbolic=True), real("value")], traits=["dimensionwise", "codes"], quant="rule")
Op("Splat", "`value` in every element. Quantized ones are the nearest to that number.", inputs=[], attrs=[real("value")], traits=["typed", "codes"], quant="rule", strided=["result"])
Op("Extents", "`values`, which may depend on symbolic extents, as a vector of i64.", inputs=[], attrs=[dims("values")], strided=["result"], no_derivative="extents are no numbers that training changes")
Op("Define", "Says what extents are that the network finds while it runs: each of `symbols` is an element of input, a vector of i64, clamped into its bounds.", inputs=["input"], results=[], attrs=[dims("symbols")], traits=["side_effect"], no_derivative="extents are no numbers that training changes")
Op("Transpose", "Dimension i of the result is dimension shuffle[i] of the input.", inputs=["input"], attrs=[ints("shuffle")], traits=["shape_only", "codes"], kernel={"input": WIDTHS}, quant="same", strided=["result", "input"])
Op("Broadcast", "input repeated to the result's shape, as numpy broadcasts; ranks are equal.", inputs=["input"], traits=["typed", "shape_only", "dimensionwise", "codes"], kernel={"input": WIDTHS}, quant="same", strided=["result", "input"])
Op("BitCast", "The same bits as elements of another kind of the same width.", inputs=["input"], traits=["typed", "codes"], kernel={"input": WIDTHS}, no_derivative="bits are no numbers")

InstOnly("Alloc", "A buffer in the activation arena, from here to its dealloc.", traits=["memory", "codes"], quant="same")
InstOnly("Dealloc", "The end of a buffer's life.", results=["buffer"], traits=["memory", "codes"], quant="same")
InstOnly("View", "Elements of a buffer from element `offset` on, in another shape: without gaps, or at `strides`, which count elements of memory. Shares its memory.", inputs=["source"], attrs=[dim("offset"), dims("strides", optional=True)], traits=["memory", "codes"], quant="same", strided=["source"])
InstOnly("Copy", "result = input.", results=["result"], inputs=["input"], traits=["inplace", "shape_only", "codes"], quant="same", strided=["result", "input"])
InstOnly("InsertTensor", "Copies input into result at `offsets`; the rest of result stays.", inouts=["result"], inputs=["input"], attrs=[dims("offsets")], traits=["shape_only", "codes"], kernel={"input": WIDTHS}, quant="same", strided=["result", "input"])
InstOnly("ExtractTensor", "result[i] = input[offsets + i * steps] in each dimension.", results=["result"], inputs=["input"], attrs=[dims("offsets"), ints("steps")], traits=["shape_only", "codes"], kernel={"input": WIDTHS}, quant="same", strided=["result", "input"])
