"""glowpy behind the interface that onnx defines for backends, `onnx.backend.base`.

```python
import onnx.backend.test
import glowpy.onnx_backend

cases = onnx.backend.test.BackendTest(glowpy.onnx_backend, __name__).test_cases
```

The module can stand for the class, as other backends' do: `prepare(model).run(inputs)`, `run_model(model, inputs)`,
`run_node(node, inputs)`, `supports_device("CPU")`, `is_compatible(model)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import onnx
from onnx import helper
from onnx.backend import base

from glowpy.backend import Backend, CompileOptions
from glowpy.importer.onnx.opening import open_onnx
from glowpy.session.session import InferenceSession
from glowpy.support.errors import UserError

__all__ = [
    "GlowpyBackend",
    "PreparedModel",
    "is_compatible",
    "prepare",
    "run_model",
    "run_node",
    "supports_device",
]


class PreparedModel(base.BackendRep):
    """A model that is ready to run."""

    def __init__(self, session: InferenceSession) -> None:
        self.session = session
        self._inputs = [info.name for info in session.get_inputs()]
        names = [info.name for info in session.get_outputs()]
        self._outputs = base.namedtupledict("Outputs", names)

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs, by position and by name, for inputs in the order of the model, or by name.

        Raises UserError for another number of inputs, or some that do not fit.
        """
        del kwargs
        return self._outputs(*self.session.run(None, _named(self._inputs, inputs)))


class GlowpyBackend(base.Backend):
    """The interface. What derives from it may compile for another backend, or with other options.

    Attributes:
        backend: The backend to compile for.
        options: How.
    """

    backend: ClassVar[str | Backend] = "cpu"
    options: ClassVar[CompileOptions | None] = None

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether networks run on a device, such as `CPU` or `CPU:0`: on processors alone."""
        kind, _, number = device.partition(":")
        return kind == "CPU" and (number or "0") == "0"

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether every operator of a model is known; what depends on shapes and types, `prepare` says."""
        del kwargs
        if not cls.supports_device(device):
            return False
        try:
            open_onnx(model)
        except UserError:
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> PreparedModel:
        """A session of the model. Of `kwargs`, onnx's runner gives tolerances, which have no meaning here.

        Raises what `InferenceSession` raises, onnx's ValidationError for a model that is none, and UserError for
        another device.
        """
        if not cls.supports_device(device):
            raise UserError(f"expected the device CPU, got '{device}'")
        super().prepare(model, device, **kwargs)  # which checks it
        return PreparedModel(InferenceSession(model, backend=cls.backend, options=cls.options))

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """The outputs of one operator.

        Args:
            node: The operator.
            inputs: Arrays, in the order of those inputs of the node that are given, or by name.
            device: Where.
            outputs_info: Dtype and shape of the outputs; inferred if left out.
            kwargs: `opset_version`; the newest if left out.

        Raises as `prepare` and `PreparedModel.run` do.
        """
        if not cls.supports_device(device):
            raise UserError(f"expected the device CPU, got '{device}'")
        names = [name for name in dict.fromkeys(node.input) if name]
        arrays = {name: np.asarray(array) for name, array in _named(names, inputs).items()}
        if arrays.keys() != {*names}:
            raise UserError(f"expected the inputs {names}, got {[*arrays]}")
        outputs = [name for name in node.output if name]
        infos = list(outputs_info) if outputs_info is not None else [None] * len(outputs)
        graph = helper.make_graph(
            [node],
            node.op_type,
            [_info(name, array.dtype, array.shape) for name, array in arrays.items()],
            [
                _info(name, *(info or (None, None)))
                for name, info in zip(outputs, infos, strict=True)
            ],
        )
        opsets = {"": int(kwargs.get("opset_version", onnx.defs.onnx_opset_version()))}
        if node.domain not in ("", "ai.onnx"):
            opsets[node.domain] = _newest(node.domain)
        imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
        model = helper.make_model(graph, opset_imports=imports, ir_version=onnx.IR_VERSION)
        onnx.checker.check_node(node, _checking(opsets))
        session = InferenceSession(model, backend=cls.backend, options=cls.options)
        return PreparedModel(session).run(arrays)


def _named(names: Sequence[str], inputs: Any) -> Mapping[str, Any]:
    """Inputs by name, of a list in the order of `names`, or of the only one."""
    if isinstance(inputs, Mapping):
        return inputs
    arrays = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
    if len(arrays) != len(names):
        raise UserError(f"expected {len(names)} inputs, got {len(arrays)}")
    return dict(zip(names, arrays, strict=True))


def _checking(opsets: dict[str, int]) -> Any:
    """Creates the context for onnx's checker: the version and operator sets of the node's model."""
    checking = onnx.checker.C.CheckerContext()
    checking.ir_version = onnx.IR_VERSION
    checking.opset_imports = opsets
    return checking


def _newest(domain: str) -> int:
    """The newest opset of a domain that onnx knows; 1 of another."""
    schemas = onnx.defs.get_all_schemas_with_history()
    return max((s.since_version for s in schemas if s.domain == domain), default=1)


def _info(
    name: str, dtype: np.dtype[Any] | None, shape: Sequence[int] | None
) -> onnx.ValueInfoProto:
    if dtype is None:
        return onnx.ValueInfoProto(name=name)
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape)


is_compatible = GlowpyBackend.is_compatible
prepare = GlowpyBackend.prepare
run_model = GlowpyBackend.run_model
run_node = GlowpyBackend.run_node
supports_device = GlowpyBackend.supports_device
