"""`InferenceSession` with the signature, results and exceptions of onnxruntime's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from os import PathLike
from typing import TYPE_CHECKING, Any, final

import numpy as np

from glowpy.backends.cpu.options import MOST_THREADS
from glowpy.core.tensor import Array
from glowpy.importer.model import Model
from glowpy.onnxruntime.binding import IOBinding
from glowpy.onnxruntime.config import configured
from glowpy.onnxruntime.devices import (
    OrtEpAssignedNode,
    OrtEpAssignedSubgraph,
    OrtEpDevice,
    OrtMemoryInfo,
)
from glowpy.onnxruntime.errors import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    ModelLoadCanceled,
    translated,
)
from glowpy.onnxruntime.feeds import fed
from glowpy.onnxruntime.global_threads import check_threads
from glowpy.onnxruntime.model import (
    ModelMetadata,
    NodeArg,
    facts,
    open_model,
    output_infos,
    whole,
    with_inputs,
)
from glowpy.onnxruntime.options import RunOptions, SessionOptions
from glowpy.onnxruntime.providers import CPU, Providers, check_providers
from glowpy.onnxruntime.session_internals import RawSession
from glowpy.onnxruntime.values import OrtValue, OrtValueVector
from glowpy.session.preparation import parse_ranges
from glowpy.session.session import InferenceSession as Session
from glowpy.support.errors import GlowError
from glowpy.support.process_bound import ProcessBound

if TYPE_CHECKING:
    from glowpy.onnxruntime.profile import Profiler

__all__ = ["InferenceSession"]

Callback = Callable[[list[Array], Any, str], object]

_RECORD = "session.record_ep_graph_assignment_info"


@final
class InferenceSession(ProcessBound):
    """Runs an ONNX model on the CPU. Safe from several threads.

    Args:
        path_or_bytes: A path, or the bytes of a file.
        sess_options: How; docs/onnxruntime.md lists what has an effect.
        providers: The providers to run on. A warning names what there is not, and the session runs on the CPU.
        provider_options: Options for each provider; none has an effect.
        kwargs: `enable_fallback=0` makes an unknown provider an error; others have no effect.

    Raises TypeError for what is no path and no bytes, NoSuchFile, InvalidProtobuf for what is no model,
    NotImplemented for what glowpy does not have, and InvalidGraph for a model that contradicts itself.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | PathLike[str],
        sess_options: SessionOptions | None = None,
        providers: Providers | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        if sess_options is not None and not isinstance(sess_options, SessionOptions):
            raise TypeError(f"expected SessionOptions, got {type(sess_options).__name__}")
        options = SessionOptions() if sess_options is None else sess_options.copy()
        self._options = configured(options, path_or_bytes)
        check_providers(
            providers or tuple(self._options.providers),
            provider_options,
            fallback=int(kwargs.get("enable_fallback", 1)) == 1,
        )
        if self._options.is_canceled():
            raise ModelLoadCanceled("SessionOptions.set_load_cancellation_flag was called")
        check_threads(self._options)
        self._options.say_ignored()
        if not 0 <= self._options.intra_op_num_threads <= MOST_THREADS:
            raise InvalidArgument(
                f"expected intra_op_num_threads of 0 to {MOST_THREADS:,}, got {self._options.intra_op_num_threads:,}"
            )
        self._profiler = _profiler(self._options)
        kind = "array" if isinstance(path_or_bytes, bytes) else "uri"
        with self._event(f"model_loading_{kind}"):
            self._model = open_model(path_or_bytes, self._options)
        self._outputs: list[NodeArg] | None = None
        self._dtypes = {info.name: info.dtype for info in self._model.inputs}
        optional = [i.name for i in self._model.inputs if i.type.startswith("optional(")]
        self._required = frozenset(self._dtypes) - frozenset(optional)
        self._types = {info.name: info.type for info in self._model.inputs}
        self._plain = isinstance(self._model, Model)
        self._facts = facts(self._model)
        self._dtypes |= {info.name: info.dtype for info in self._facts.overridable}
        self._sessions: dict[frozenset[str], Session] = {}
        with self._event("session_initialization"):
            try:
                self._session = self._session_with(frozenset())
                if self._facts.keeps_caches and (self._options.ranges or self._options.is_frozen()):
                    self._session_with(frozenset(), shared=True)
                if self._options.optimized_model_filepath:
                    from glowpy.onnxruntime.optimized import (  # noqa: PLC0415 - the exporter
                        write_optimized,
                    )

                    write_optimized(path_or_bytes, self._options)
            except GlowError as error:
                raise translated(error, InvalidGraph) from error

    def _session_with(self, names: frozenset[str], *, shared: bool = False) -> Session:
        """The session whose inputs these initializers are; caches are in the memory of their past if it is `shared`."""
        key = names | {""} if shared else names
        session = self._sessions.get(key)
        if session is None:
            model = self._model
            if names and isinstance(model, Model):
                model = with_inputs(model, names)
            if shared and isinstance(model, Model):
                model = model.for_session(checked=model.checked, shares_caches=True)
            session = Session(
                model,
                threads=self._options.intra_op_num_threads,
                low_memory=self._options.has_low_memory(),
                precision=self._options.named_precision(),
                observer=self._profiler,
                check_indices=True,
            )
            self._prepare(session)
            session = self._sessions.setdefault(key, session)
        return session

    def _prepare(self, session: Session) -> None:
        """Compiles ahead what the options ask for."""
        try:
            if self._options.ranges:
                session.prepare(parse_ranges(self._options.ranges))
        except GlowError as error:
            raise translated(error, InvalidArgument) from error
        if self._options.is_frozen():
            session.freeze()

    def _event(self, name: str) -> AbstractContextManager[None]:
        return nullcontext() if self._profiler is None else self._profiler.event(name)

    def __repr__(self) -> str:
        return repr(self._session)

    def _repr_html_(self) -> str:
        """Returns a table of inputs and outputs for notebooks."""
        return self._session._repr_html_()

    # What the session knows.

    def get_inputs(self) -> list[NodeArg]:
        """The inputs without initializers, in the order of the model."""
        return [NodeArg.of(info) for info in self._model.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, in the order of the model, with the sizes that follow from those of the inputs."""
        if self._outputs is None:
            self._outputs = output_infos(self._model)
        return list(self._outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The initializers that a run may give others for."""
        return [NodeArg.of(info) for info in self._facts.overridable]

    def get_modelmeta(self) -> ModelMetadata:
        """The metadata of the model."""
        return self._facts.metadata

    def get_session_options(self) -> SessionOptions:
        """A copy of the options."""
        return self._options.copy()

    def get_providers(self) -> list[str]:
        """The providers that the session runs on: the CPU alone."""
        return [CPU]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options of what the session runs on, which has none."""
        return {CPU: {}}

    def set_providers(
        self,
        providers: Providers | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
    ) -> None:
        """Warns of what there is not, and keeps to the CPU.

        Raises ValueError for arguments of a wrong form, RuntimeError for a provider that nobody knows.
        """
        check_providers(providers, provider_options, fallback=False)

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """Where each input is: in the memory of the CPU."""
        return [OrtMemoryInfo("Cpu") for _ in self._model.inputs]

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """Where each output is: in the memory of the CPU."""
        return [OrtMemoryInfo("Cpu") for _ in self._model.outputs]

    def get_input_epdevices(self) -> list[OrtEpDevice]:
        """The device that reads each input: the CPU."""
        return [OrtEpDevice() for _ in self._model.inputs]

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """The nodes of the model, each of which the CPU computes.

        Raises Fail unless the options record it, as in onnxruntime.
        """
        if self._options.entry(_RECORD) != "1":
            raise Fail(
                f"Session configuration entry '{_RECORD}' must be set to \"1\" to ask for this"
            )
        return [
            OrtEpAssignedSubgraph(CPU, (OrtEpAssignedNode(node.name, node.domain, node.op_type),))
            for node in whole(self._model).source.proto.graph.node
        ]

    def get_tuning_results(self) -> list[dict[str, Any]]:
        """Nothing: what `--tune` of the command line measures is in glowpy's cache."""
        return []

    def set_tuning_results(
        self, results: Sequence[Mapping[str, Any]], *, error_on_invalid: bool = False
    ) -> None:
        """Has no effect. Raises RuntimeError for results of a provider that there is not, if that is asked for."""
        names = [result["ep"] for result in results]
        if error_on_invalid and names:
            raise RuntimeError(f"Cannot find execution provider {names[0]}")

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Has no effect: the CPU has no options."""
        del options

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Nothing to do: nothing is captured."""
        del graph_annotation_id

    @property
    def _sess(self) -> Any:
        """The object beneath the session that some libraries reach for."""
        return RawSession(self)

    def disable_fallback(self) -> None:
        """Nothing to do: there is no other provider to fall back from."""

    def enable_fallback(self) -> None:
        """Nothing to do: there is no other provider to fall back from."""

    # Runs.

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: RunOptions | None = None,
    ) -> list[Array]:
        """Computes outputs.

        Args:
            output_names: Which outputs, and in which order; None or an empty list for all.
            input_feed: An array, a nested list or an OrtValue for each input.
            run_options: How.

        Returns new arrays that belong to the caller. Raises ValueError for a missing input, InvalidArgument for a name
        that the model does not have and an array that does not fit, RuntimeError for what is no array, and Fail if
        the run is to be terminated.
        """
        self._require(input_feed)
        if run_options is not None:
            _obey(run_options)
            input_feed = {**run_options.adapted, **input_feed}
        feeds = input_feed
        plain = self._plain
        for value in input_feed.values():
            if not plain or type(value) is not np.ndarray:
                feeds = {
                    name: fed(name, value, self._types.get(name, ""), self._dtypes.get(name))
                    for name, value in input_feed.items()
                }
                break
        try:
            return self._computed(_list(output_names), feeds)
        except GlowError as error:
            raise translated(error, InvalidArgument) from error

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> OrtValueVector:
        """As `run`, with values in and out."""
        feeds = {name: value.numpy() for name, value in input_dict_ort_values.items()}
        return OrtValueVector.of(self.run(output_names, feeds, run_options))

    def run_with_ortvaluevector(
        self,
        run_options: RunOptions | None,
        feed_names: Sequence[str],
        feeds: Sequence[OrtValue],
        fetch_names: Sequence[str],
        fetches: OrtValueVector,
        fetch_devices: object = None,
    ) -> None:
        """As `run`; the outputs called `fetch_names` are appended to `fetches`."""
        del fetch_devices
        arrays = {name: value.numpy() for name, value in zip(feed_names, feeds, strict=True)}
        fetches.extend(OrtValueVector.of(self.run(fetch_names, arrays, run_options)))

    def create_ortvalue_from_shape_and_type(
        self,
        shape: Sequence[int],
        element_type: object,
        device_type: str,
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """As `OrtValue.ortvalue_from_shape_and_type`."""
        return OrtValue.ortvalue_from_shape_and_type(
            shape, element_type, device_type, device_id, vendor_id
        )

    def io_binding(self) -> IOBinding:
        """Bindings of this session's inputs and outputs to memory; nothing is bound."""
        return IOBinding(self)

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """Runs on what inputs and outputs are bound to.

        Raises ValueError for the binding of another session, RuntimeError for whatever is wrong with what is bound.
        """
        if iobinding.session is not self:
            raise ValueError("expected a binding that this session has made")
        names = iobinding.output_names()
        if not names:
            raise RuntimeError("expected at least one output that is bound")
        feeds = iobinding.feeds()
        try:
            self._require(feeds)
            if run_options is not None:
                _obey(run_options)
            results = self._computed(names, feeds, iobinding.out())
        except (Fail, GlowError, ValueError) as error:
            raise RuntimeError(f"Error in execution: {error}") from error
        iobinding.take(results)

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callback,
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """As `run`, in a thread that calls `callback(results, user_data, error)`.

        The error is empty if there are results, and the results are empty if there is an error. Raises
        ValueError for a missing input.
        """
        self._require(input_feed)

        def work() -> None:
            results, message = [], ""
            try:
                results = self.run(output_names, input_feed, run_options)
            except Exception as error:  # noqa: BLE001 -- the callback is who must hear of it
                message = str(error)
            callback(results, user_data, message)

        threading.Thread(target=work, name="glowpy-run-async").start()

    def _require(self, input_feed: Mapping[str, Any]) -> None:
        if not self._required <= input_feed.keys():
            missing = [name for name in self._dtypes if name in self._required - input_feed.keys()]
            raise ValueError(
                f"Required inputs ({missing}) are missing from input feed ({list(input_feed)})."
            )

    def _computed(
        self,
        names: list[str] | None,
        feeds: Mapping[str, Array],
        out: Mapping[str, Array] | None = None,
    ) -> list[Array]:
        shared = self._facts.keeps_caches and out is not None and _shares_memory(feeds, out)
        is_complete = len(feeds) == len(self._required) or not self._plain
        if self._profiler is None and is_complete and not shared:
            return self._session.run(names, feeds, out=out)
        choice = {info.name for info in self._facts.overridable}
        session = self._session_with(frozenset(feeds.keys() & choice), shared=shared)
        with self._event("model_run"):
            return session.run(names, feeds, out=out)

    # Profiles.

    def end_profiling(self) -> str:
        """Writes the profile. The name of its file; empty if there is none, or if it was written before."""
        return "" if self._profiler is None else self._profiler.end()

    def get_profiling_start_time_ns(self) -> int:
        """When the profile began, as `time.monotonic_ns` counts; 0 if there is none."""
        return 0 if self._profiler is None else self._profiler.start


def _profiler(options: SessionOptions) -> Profiler | None:
    """A profiler, if the options ask for one."""
    if not options.enable_profiling:
        return None
    from glowpy.onnxruntime.profile import Profiler  # noqa: PLC0415 - instructions

    return Profiler(options.profile_file_prefix)


def _shares_memory(feeds: Mapping[str, Array], out: Mapping[str, Array]) -> bool:
    """Whether an output is bound to the memory of an input."""
    pairs = ((array, feed) for array in out.values() for feed in feeds.values())
    return any(np.may_share_memory(*pair) for pair in pairs)


def _list(names: Sequence[str] | None) -> list[str] | None:
    """The names of outputs; None for all of them. Raises TypeError for a single name."""
    if isinstance(names, str):
        raise TypeError(f"expected a list of outputs, got '{names}'")
    return list(names) if names else None


def _obey(options: RunOptions) -> None:
    """Raises Fail if the run is to be terminated, and says what has no effect."""
    if not isinstance(options, RunOptions):
        raise TypeError(f"expected RunOptions, got {type(options).__name__}")
    if options.terminate:
        raise Fail("RunOptions.terminate is set")
    options.say_ignored()
