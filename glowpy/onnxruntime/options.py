"""`SessionOptions` and `RunOptions`: the attributes that onnxruntime's have, with the same types and defaults."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, IntEnum
from typing import Any, Generic, Literal, Self, TypeVar, final, overload

from glowpy.core.tensor import Array
from glowpy.onnxruntime import errors
from glowpy.onnxruntime.adapters import LoraAdapter
from glowpy.onnxruntime.logs import say_once
from glowpy.onnxruntime.values import OrtValue

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "RunOptions",
    "SessionOptions",
    "get_default_session_options",
]

T = TypeVar("T")


class _Choice(IntEnum):
    """A number with a name, which prints as its name."""

    __str__ = Enum.__str__


class GraphOptimizationLevel(_Choice):
    """How much is optimized. glowpy has one level, and says so when it is asked for another."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(_Choice):
    """Whether operators run one after the other, as they do in glowpy, or several at once."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(_Choice):
    """In which order operators run. glowpy chooses an order that needs little memory."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


@final
class _Option(Generic[T]):
    """An attribute with a default. What is assigned is converted; raises TypeError for what cannot be."""

    def __init__(self, default: T, convert: Callable[[Any], T]) -> None:
        self.default = default
        self._convert = convert

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, options: None, owner: type) -> Self: ...
    @overload
    def __get__(self, options: _Options, owner: type) -> T: ...
    def __get__(self, options: _Options | None, owner: type) -> T | Self:
        return self if options is None else options._values.get(self._name, self.default)

    def __set__(self, options: _Options, value: T) -> None:
        try:
            options._values[self._name] = self._convert(value)
        except TypeError as error:
            raise TypeError(f"{self._name}: {error}") from None


def _flag(default: bool) -> _Option[bool]:
    def convert(value: Any) -> bool:
        if value is not None and not hasattr(value, "__bool__"):
            raise TypeError(f"expected True or False, got {value!r}")
        return bool(value)

    return _Option(default, convert)


def _number(default: int) -> _Option[int]:
    return _Option(default, operator.index)


def _instance(default: T) -> _Option[T]:
    kind = type(default)

    def convert(value: Any) -> T:
        if not isinstance(value, kind):
            raise TypeError(f"expected {kind.__name__}, got {value!r}")
        return value

    return _Option(default, convert)


class _Options:
    """Attributes by name, and entries by key. An attribute that is not declared cannot be assigned."""

    __slots__ = ("_entries", "_values")

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._entries: dict[str, str] = {}

    def __repr__(self) -> str:
        """Shows the settings that were changed, and the entries."""
        settings = [f"{name}={value!r}" for name, value in self._values.items()]
        entries = [f"{key!r}: {value!r}" for key, value in self._entries.items()]
        return f"<{' '.join([type(self).__name__, ', '.join(settings + entries)]).strip()}>"

    def _add_entry(self, key: object, value: object) -> None:
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"expected a key and a value that are str, got {key!r} and {value!r}")
        self._entries[key] = value

    def _entry(self, key: str) -> str:
        if key not in self._entries:
            name = type(self).__name__
            raise RuntimeError(f"{name} does not have configuration with key: {key}")
        return self._entries[key]

    def _say_ignored(self, notes: Mapping[str, str], severity: int) -> None:
        """Says which attributes have a value that is not the default and has no effect."""
        for name, note in notes.items():
            default = getattr(type(self), name).default
            value = self._values.get(name, default)
            if value != default:
                say_once(
                    f"{type(self).__name__}.{name} = {value!s} has no effect: {note}", severity
                )


@final
class RunOptions(_Options):
    """How one run goes."""

    __slots__ = ()

    log_severity_level = _number(-1)
    log_verbosity_level = _number(0)
    logid = _instance("")
    only_execute_path_to_fetches = _flag(False)
    terminate = _flag(False)

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keeps an entry; none has an effect. Raises TypeError unless both are str."""
        self._add_entry(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """The value of an entry. Raises RuntimeError if there is none."""
        return self._entry(key)

    def add_active_adapter(self, adapter: LoraAdapter) -> None:
        """Has the run take the tensors of an adapter for initializers that may be overridden.

        Raises TypeError for what is no LoraAdapter.
        """
        if not isinstance(adapter, LoraAdapter):
            raise TypeError(f"expected a LoraAdapter, got {adapter!r}")
        self._values.setdefault("adapters", []).append(adapter)

    @property
    def adapted(self) -> dict[str, Array]:
        """The tensors of all adapters by name."""
        adapters: list[LoraAdapter] = self._values.get("adapters", [])
        return {name: array for adapter in adapters for name, array in adapter.arrays.items()}

    def say_ignored(self) -> None:
        """Says what has no effect."""
        notes = {"only_execute_path_to_fetches": "all outputs are computed"}
        self._say_ignored(notes, self.log_severity_level)
        for key in self._entries:
            say_once(f"the run config entry '{key}' has no effect", self.log_severity_level)


_IGNORED = {
    "graph_optimization_level": "glowpy has one level",
    "execution_mode": "operators run one after the other, each on all threads",
    "execution_order": "glowpy orders operators for little memory",
    "enable_cpu_mem_arena": "memory is planned when the network is compiled",
    "enable_mem_pattern": "memory is planned when the network is compiled",
    "enable_mem_reuse": "memory is planned when the network is compiled",
    "use_per_session_threads": "each session has threads of its own",
}

PREPARE = "glowpy.prepare"
"""The entry that says what to compile when a session is made: `batch=1..32 seq=1..512`."""
FROZEN = "glowpy.frozen"
"""The entry that says, by `1`, that a session is to compile nothing after that."""
LOW_MEMORY = "glowpy.low_memory"
"""The entry that says, by `1`, that weights are to take no more memory than the model has them in."""
PRECISION = "glowpy.precision"
"""The entry that says what products in f32 are computed in: `f32`, or `bf16`."""

_TRUE_ANYWAY = {"session.load_model_format": "ONNX", "session.intra_op.allow_spinning": "0"}
"""Entries that say what glowpy does."""

_OWN = (PREPARE, FROZEN, LOW_MEMORY, PRECISION)
"""Entries that only glowpy has."""


@final
class SessionOptions(_Options):
    """How a session is made. docs/onnxruntime.md lists what has an effect."""

    __slots__ = ("dims", "files", "initializers", "providers")

    enable_cpu_mem_arena = _flag(True)
    enable_mem_pattern = _flag(True)
    enable_mem_reuse = _flag(True)
    enable_profiling = _flag(False)
    execution_mode = _instance(ExecutionMode.ORT_SEQUENTIAL)
    execution_order = _instance(ExecutionOrder.DEFAULT)
    graph_optimization_level = _instance(GraphOptimizationLevel.ORT_ENABLE_ALL)
    inter_op_num_threads = _number(0)
    intra_op_num_threads = _number(0)
    log_severity_level = _number(-1)
    log_verbosity_level = _number(0)
    logid = _instance("")
    optimized_model_filepath = _instance("")
    profile_file_prefix = _instance("onnxruntime_profile_")
    use_deterministic_compute = _flag(False)
    use_per_session_threads = _flag(True)

    def __init__(self) -> None:
        super().__init__()
        self.dims: dict[tuple[str, str], int] = {}
        """Sizes of dimensions by ("name" or "denotation", what it is called)."""
        self.initializers: dict[str, OrtValue] = {}
        """Tensors that take the place of initializers, by their names."""
        self.files: dict[str, bytes] = {}
        """Bytes that take the place of files of external data, by the files' names."""
        self.providers: list[tuple[str, dict[str, str]]] = []

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keeps an entry. Raises TypeError unless both are str."""
        self._add_entry(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """The value of an entry. Raises RuntimeError if there is none."""
        return self._entry(key)

    def entry(self, key: str) -> str:
        """The value of an entry; empty if there is none."""
        return self._entries.get(key, "")

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Gives a symbolic dimension a size."""
        self.dims["name", name] = operator.index(size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Gives dimensions with a denotation, such as `DATA_BATCH`, a size."""
        self.dims["denotation", denotation] = operator.index(size)

    def add_initializer(self, name: str, value: OrtValue) -> None:
        """Puts a value in the place of an initializer of the model. Raises TypeError unless it is an OrtValue."""
        if not isinstance(value, OrtValue):
            raise TypeError(f"expected an OrtValue for initializer '{name}', got {value!r}")
        self.initializers[name] = value

    def add_external_initializers(self, names: Sequence[str], values: Sequence[OrtValue]) -> None:
        """Puts values in the places of initializers. Raises RuntimeError unless there are as many of both."""
        if len(names) != len(values):
            raise RuntimeError(
                f"expected as many names as values, got {len(names)} and {len(values)}"
            )
        for name, value in zip(names, values, strict=True):
            self.add_initializer(name, value)

    def add_external_initializers_from_files_in_memory(
        self, file_names: Sequence[str], buffers: Sequence[bytes], lengths: Sequence[int]
    ) -> None:
        """Puts bytes in the places of files of external data. Raises RuntimeError unless there are as many of each."""
        if not len(file_names) == len(buffers) == len(lengths):
            raise RuntimeError(
                f"expected as many names as buffers and lengths, got {len(file_names)}, "
                f"{len(buffers)} and {len(lengths)}"
            )
        for name, buffer, length in zip(file_names, buffers, lengths, strict=True):
            self.files[name] = bytes(buffer[:length])

    def add_provider(self, name: str, options: Mapping[str, str]) -> None:
        """Asks for an execution provider, as the argument `providers` of a session does."""
        self.providers.append((name, dict(options)))

    def add_provider_for_devices(self, devices: object, options: object) -> None:
        """Raises NotImplemented."""
        del devices, options
        raise errors.NotImplemented("glowpy runs on the CPU; there are no other devices")

    def set_provider_selection_policy(self, policy: object) -> None:
        """Has no effect: there is one provider."""
        del policy
        say_once(
            "a policy to select providers has no effect: there is one", self.log_severity_level
        )

    set_provider_selection_policy_delegate = set_provider_selection_policy

    def set_ep_context_data_read_func(self, read_func: object, max_data_size: int) -> None:
        """Has no effect: networks are compiled here."""
        del read_func, max_data_size
        say_once("set_ep_context_data_read_func has no effect", self.log_severity_level)

    def clear_ep_context_data_read_func(self) -> None:
        """Nothing to do."""

    def set_load_cancellation_flag(self, canceled: bool) -> None:
        """Makes a session with these options raise ModelLoadCanceled."""
        self._values["canceled"] = canceled

    def is_canceled(self) -> bool:
        """Whether `set_load_cancellation_flag` was called with True."""
        return bool(self._values.get("canceled"))

    def has_providers(self) -> bool:
        """Whether `add_provider` was called."""
        return bool(self.providers)

    def register_custom_ops_library(self, path: str) -> None:
        """Raises NotImplemented."""
        raise errors.NotImplemented(
            f"cannot take operators from '{path}': they are machine code for onnxruntime"
        )

    def say_ignored(self) -> None:
        """Says what has no effect. Raises NotImplemented for entries that ask for what glowpy cannot do."""
        severity = self.log_severity_level
        if self._entries.get("session.load_model_format", "ONNX") != "ONNX":
            raise errors.NotImplemented(
                "models in the ORT format are not supported; load the ONNX file"
            )
        self._say_ignored(_IGNORED, severity)
        if self.inter_op_num_threads > 1:
            say_once(
                f"SessionOptions.inter_op_num_threads = {self.inter_op_num_threads} has no effect: "
                + _IGNORED["execution_mode"],
                severity,
            )
        for key, value in self._entries.items():
            if _TRUE_ANYWAY.get(key) != value and key not in _OWN:
                say_once(f"the session config entry '{key}' has no effect", severity)

    @property
    def ranges(self) -> list[str]:
        """The ranges of open dimensions to compile for when a session is made: `batch=1..32`."""
        return self._entries.get(PREPARE, "").replace(";", " ").split()

    def is_frozen(self) -> bool:
        """Whether a session compiles nothing once it is made. Raises InvalidArgument for an entry that does not say."""
        return self._says(FROZEN)

    def has_low_memory(self) -> bool:
        """Whether weights are to take little memory. Raises InvalidArgument for an entry that does not say."""
        return self._says(LOW_MEMORY)

    def named_precision(self) -> Literal["f32", "bf16"]:
        """The kind that products in f32 are computed in. Raises InvalidArgument for an entry that is neither."""
        value = self._entries.get(PRECISION, "f32")
        if value not in ("f32", "bf16"):
            raise errors.InvalidArgument(f"{PRECISION}: expected f32 or bf16, got '{value}'")
        return "bf16" if value == "bf16" else "f32"

    def _says(self, key: str) -> bool:
        value = self._entries.get(key, "0")
        if value not in ("0", "1"):
            raise errors.InvalidArgument(f"{key}: expected 0 or 1, got '{value}'")
        return value == "1"

    def copy(self) -> SessionOptions:
        """Options of their own with the same values."""
        twin = SessionOptions()
        for name in ("_values", "_entries", "dims", "files", "initializers", "providers"):
            setattr(twin, name, getattr(self, name).copy())
        return twin


def get_default_session_options() -> SessionOptions:
    """Options as they are before anything is set."""
    return SessionOptions()
