"""The classes beneath onnxruntime's Python ones, as far as libraries reach for them, with other arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from glowpy.core.tensor import Array
from glowpy.onnxruntime.binding import IOBinding
from glowpy.onnxruntime.devices import OrtDevice, OrtEpDevice, OrtMemoryInfo
from glowpy.onnxruntime.model import ModelMetadata, NodeArg
from glowpy.onnxruntime.options import RunOptions, SessionOptions
from glowpy.onnxruntime.values import OrtValue, OrtValueVector

if TYPE_CHECKING:
    from glowpy.onnxruntime.session import InferenceSession

__all__ = ["RawSession", "SessionIOBinding"]


class RawSession:
    """The object that lies beneath a session: its outputs are named after its inputs, and its properties are nouns."""

    def __init__(self, session: InferenceSession) -> None:
        self.session = session

    def initialize_session(
        self,
        providers: Sequence[str] = (),
        provider_options: Sequence[Mapping[str, str]] = (),
        disabled_optimizers: object = (),
    ) -> None:
        """Warns of providers that there are not."""
        del disabled_optimizers
        if providers:
            self.session.set_providers(providers, provider_options or None)

    @property
    def inputs_meta(self) -> list[NodeArg]:
        """The inputs without initializers."""
        return self.session.get_inputs()

    @property
    def outputs_meta(self) -> list[NodeArg]:
        """The outputs."""
        return self.session.get_outputs()

    @property
    def overridable_initializers(self) -> list[NodeArg]:
        """The initializers that a run may give others for."""
        return self.session.get_overridable_initializers()

    @property
    def model_meta(self) -> ModelMetadata:
        """The metadata of the model."""
        return self.session.get_modelmeta()

    @property
    def session_options(self) -> SessionOptions:
        """A copy of the options."""
        return self.session.get_session_options()

    @property
    def input_meminfos(self) -> list[OrtMemoryInfo]:
        """Where inputs are."""
        return self.session.get_input_memory_infos()

    @property
    def output_meminfos(self) -> list[OrtMemoryInfo]:
        """Where outputs are."""
        return self.session.get_output_memory_infos()

    @property
    def input_epdevices(self) -> list[OrtEpDevice]:
        """The devices that read the inputs."""
        return self.session.get_input_epdevices()

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Array]:
        """Runs as `InferenceSession.run` does."""
        return self.session.run(output_names, input_feed, run_options)

    def run_with_ort_values(
        self,
        input_feed: Mapping[str, OrtValue],
        output_names: Sequence[str],
        run_options: RunOptions | None = None,
    ) -> OrtValueVector:
        """Runs as `InferenceSession.run_with_ort_values` does."""
        return self.session.run_with_ort_values(output_names, input_feed, run_options)

    def run_with_iobinding(
        self, binding: SessionIOBinding | IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Runs as `InferenceSession.run_with_iobinding` does."""
        inner = binding.binding if isinstance(binding, SessionIOBinding) else binding
        self.session.run_with_iobinding(inner, run_options)

    def __getattr__(self, name: str) -> Any:
        """Looks up attributes that both kinds of sessions have, such as `get_providers` and `end_profiling`."""
        if name == "session" or name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.session, name)


@final
class SessionIOBinding:
    """The memory of inputs and outputs, with devices as objects."""

    def __init__(self, session: RawSession) -> None:
        self.binding = session.session.io_binding()

    def bind_input(self, name: str, *where: Any) -> None:
        """Binds an input to an array; or with a device, a type, and a shape, to the memory at an address."""
        if len(where) == 1:
            self.binding.bind_cpu_input(name, where[0])
            return
        device, element_type, shape, address = where
        self.binding.bind_input(name, _named(device), 0, element_type, shape, address)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Binds an input to a value."""
        self.binding.bind_ortvalue_input(name, ortvalue)

    def bind_output(
        self,
        name: str,
        device: OrtDevice,
        element_type: object = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Binds an output to the memory at an address; without one, to new memory at every run."""
        self.binding.bind_output(name, _named(device), 0, element_type, shape, buffer_ptr)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Binds an output to a value."""
        self.binding.bind_ortvalue_output(name, ortvalue)

    def clear_binding_inputs(self) -> None:
        """Forgets what inputs are bound to."""
        self.binding.clear_binding_inputs()

    def clear_binding_outputs(self) -> None:
        """Forgets what outputs are bound to."""
        self.binding.clear_binding_outputs()

    def synchronize_inputs(self) -> None:
        """Nothing to do on the CPU."""

    def synchronize_outputs(self) -> None:
        """Nothing to do on the CPU."""

    def get_outputs(self) -> OrtValueVector:
        """The outputs of the last run."""
        return self.binding.get_outputs_as_ortvaluevector()

    def copy_outputs_to_cpu(self) -> list[Array]:
        """Copies of the outputs of the last run."""
        return self.binding.copy_outputs_to_cpu()


def _named(device: OrtDevice) -> str:
    """The name that a binding has for a device."""
    return "cpu" if device.device_type() == OrtDevice.cpu() else "gpu"
