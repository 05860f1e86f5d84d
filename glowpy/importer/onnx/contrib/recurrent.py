"""Import of DynamicQuantizeLSTM, which onnxruntime's quantizer makes of LSTM: weights are stored integers.

The input of all steps is quantized by the range that it has when the network runs, and multiplied in integers. The
state is multiplied in floats, which rounds less than onnxruntime: it quantizes the states that one of its threads has.
"""

from __future__ import annotations

from glowpy.core.type import Shape
from glowpy.graph.node import NodeValue
from glowpy.importer.onnx.contrib.quant import scaled
from glowpy.importer.onnx.contrib.schemas import CONTRIB
from glowpy.importer.onnx.data_movement import reshape, slice_axis, transpose
from glowpy.importer.onnx.node import OnnxNode, Value, from_onnx
from glowpy.importer.onnx.quant import dequantized, integer_product
from glowpy.importer.onnx.recurrent import Layer, lstm
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim

__all__: list[str] = []

_GATES = 4


class _QuantizedLayer(Layer):
    """An LSTM whose weights are [directions, depth, units of all gates], with a scale each or one for each column."""

    units_axis = 1

    def __init__(self, n: OnnxNode) -> None:
        super().__init__(n, _GATES)
        stored, scale, zero = n.f.create_dynamic_quantize(n.name, n.input(0)).results
        self._stored, self._scale, self._zero = stored, scale, zero

    def weight_shapes(self, width: Dim) -> dict[int, Shape]:
        """Those of the inputs that are weights, where the layer's input is so wide."""
        count, columns = len(self.directions), _GATES * self.units
        self._check_parameters(8, (count, columns))
        self._check_parameters(10, (count, columns))
        return {1: (count, width, columns), 2: (count, self.units, columns)}

    def _check_parameters(self, index: int, shape: tuple[int, int]) -> None:
        """Raises UserError unless scale and zero point are of directions, or of all columns."""
        for own in (index, index + 1):
            if self.n.type(own).shape not in (shape, shape[:1]):
                raise UserError(
                    f"expected input {own} of shape {[shape[0]]} or {list(shape)}, got {self.n.type(own)}"
                )

    def _of(self, index: int, direction: int) -> Value:
        """What of an input is one direction's: a matrix, a vector for its columns, or one number."""
        n = self.n
        own = slice_axis(n, n.value(index), 0, direction, 1, 1)
        return reshape(n, own, n.type(index).shape[1:])

    def input_product(self, direction: int) -> NodeValue:
        """The input of all steps times its weights, in integers."""
        weights, zero = self._of(1, direction), self._of(9, direction)
        sums = integer_product(self.n, self._stored, weights, self._zero, zero)
        return scaled(self.n, sums, self._scale, self._of(8, direction))

    def state_weights(self, direction: int) -> Value:
        """The weights of the state, in floats: a row for each unit of each gate."""
        matrix, scale, zero = (self._of(index, direction) for index in (2, 10, 11))
        return transpose(self.n, dequantized(self.n, matrix, scale, zero, 1), (1, 0))


@from_onnx("DynamicQuantizeLSTM", domain=CONTRIB)
def _dynamic_quantize_lstm(n: OnnxNode) -> tuple[Value, ...]:
    return lstm(_QuantizedLayer(n))
