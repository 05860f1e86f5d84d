"""`IOBinding`: inputs and outputs that are bound to memory before a session runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, final

from glowpy.core.tensor import Array
from glowpy.onnxruntime.devices import check_device
from glowpy.onnxruntime.values import OrtValue, OrtValueVector, array_at, kind_named

if TYPE_CHECKING:
    from glowpy.onnxruntime.session import InferenceSession

__all__ = ["IOBinding"]


@final
class IOBinding:
    """The memory of inputs and outputs. What is bound is not copied before a run; inputs may change between runs.

    Attributes:
        session: The session that it is for.
    """

    def __init__(self, session: InferenceSession) -> None:
        self.session = session
        self._inputs: dict[str, OrtValue] = {}
        self._outputs: dict[str, OrtValue | None] = {}
        self._results = OrtValueVector()

    def bind_cpu_input(self, name: str, arr_on_cpu: Array) -> None:
        """Binds an input to an array; to a copy, if the array is not C-contiguous.

        Raises RuntimeError for a name that is no input, and for what is no array.
        """
        self.bind_ortvalue_input(name, OrtValue.ortvalue_from_numpy(arr_on_cpu))

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: object,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Binds an input to the memory at an address, which the caller keeps.

        Raises RuntimeError for a name that is no input, and for another device than the CPU.
        """
        del device_id
        check_device(device_type)
        self.bind_ortvalue_input(
            name, OrtValue(array_at(buffer_ptr, kind_named(element_type), shape))
        )

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Binds an input to a value. Raises RuntimeError for a name that is no input."""
        node_args = [*self.session.get_inputs(), *self.session.get_overridable_initializers()]
        if name not in [info.name for info in node_args]:
            names = ", ".join(f"'{info.name}'" for info in node_args)
            raise RuntimeError(f"expected one of the inputs {names or 'none'}, got '{name}'")
        self._inputs[name] = ortvalue

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: object = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Binds an output to the memory at an address, which the caller keeps; without one, to new memory at every run.

        Raises RuntimeError for another device than the CPU, ValueError for an address without a type and shape.
        """
        del device_id
        check_device(device_type)
        if buffer_ptr is None:
            self._outputs[name] = None
            return
        if element_type is None or shape is None:
            raise ValueError(f"'{name}': expected a type and shape of the memory at {buffer_ptr}")
        self._outputs[name] = OrtValue(array_at(buffer_ptr, kind_named(element_type), shape))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Binds an output to a value."""
        self._outputs[name] = ortvalue

    def clear_binding_inputs(self) -> None:
        """Forgets what inputs are bound to."""
        self._inputs = {}

    def clear_binding_outputs(self) -> None:
        """Forgets what outputs are bound to, and the results of the last run."""
        self._outputs = {}
        self._results = OrtValueVector()

    def synchronize_inputs(self) -> None:
        """Nothing to do on the CPU."""

    def synchronize_outputs(self) -> None:
        """Nothing to do on the CPU."""

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run, in the order in which they were bound."""
        return list(self._results)

    def get_outputs_as_ortvaluevector(self) -> OrtValueVector:
        """The outputs of the last run, in the order in which they were bound."""
        return self._results

    def copy_outputs_to_cpu(self) -> list[Array]:
        """Copies of the outputs of the last run, in the order in which they were bound."""
        return [value.numpy().copy() for value in self._results]

    def feeds(self) -> dict[str, Array]:
        """Returns the arrays that the inputs are bound to."""
        return {name: value.numpy() for name, value in self._inputs.items()}

    def output_names(self) -> list[str]:
        """The outputs, in the order in which they were bound."""
        return list(self._outputs)

    def out(self) -> dict[str, Array]:
        """The memory that outputs are bound to."""
        return {name: value.numpy() for name, value in self._outputs.items() if value is not None}

    def take(self, arrays: Sequence[Array]) -> None:
        """Keeps the results of a run."""
        values = zip(self._outputs.values(), arrays, strict=True)
        self._results = OrtValueVector(
            OrtValue(array) if value is None else value for value, array in values
        )
