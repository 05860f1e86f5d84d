"""`Model`: what sessions, verbs and `glowpy.load` ask of a model, whatever its format is.

A reader derives from it: it says what goes in and out, and builds a module for inputs of given types. Which types these
are, what state there is and what names the result follows from that here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from glowpy.core.extents import symbols_of_types
from glowpy.core.state_pairs import Declared, StatePairs, check_pairs, recognized_pairs
from glowpy.core.tensor import Array
from glowpy.core.type import Shape, Type
from glowpy.importer.declared import DeclaredDim, ValueInfo, bind, check_admitted
from glowpy.importer.reports import blamed, located
from glowpy.importer.storage import InFile
from glowpy.support.errors import UserError
from glowpy.support.loc import Loc
from glowpy.support.symbolic import Dim, highest, lowest

if TYPE_CHECKING:
    from glowpy.graph.function import Module
    from glowpy.importer.host_plan import HostPlan
    from glowpy.importer.needs import RoundsError, ValueNeededError
    from glowpy.importer.value_types import HostInfo

__all__ = ["Content", "HostedModel", "Model"]


@dataclass(frozen=True)
class Content:
    """Content of a model that says the same in every process.

    Attributes:
        digest: What `Model.digest` says of it, without the ways in which it is read.
        files: The files that it is in but for the model's own.
    """

    digest: str
    files: Mapping[Path, InFile]


class HostedModel(ABC):
    """A checked model of which a session computes a part itself."""

    @property
    @abstractmethod
    def file(self) -> str:
        """The name of the model in messages."""

    @property
    @abstractmethod
    def inputs(self) -> list[HostInfo]:
        """The inputs, in the order of the model."""

    @property
    @abstractmethod
    def outputs(self) -> list[HostInfo]:
        """The outputs, in the order of the model."""

    @property
    @abstractmethod
    def plan(self) -> HostPlan:
        """The steps of the model. Raises UserError that lists the nodes that are wrong in themselves."""

    @property
    @abstractmethod
    def has_host_steps(self) -> bool:
        """Whether there is a step that the session computes, and not only values that machine code does not have."""

    @property
    def content(self) -> Content | None:
        """Names what the model is made of: see `Model.content`."""
        return None


class Model(ABC):
    """A checked model, from which modules are built for different shapes. Safe to build from several threads.

    Attributes:
        checked: Whether networks check indices as they run, if the format has any to check.
        shares_caches: Whether what attention keeps goes where its past is, whose tail then stays.
        runs_rounds: Whether who runs it can run a loop round by round that would be long if it were written out.
        reader: The reader of a package that it is from, in the words of messages; empty for glowpy's own.
    """

    checked: bool = False
    shares_caches: bool = False
    runs_rounds: bool = False
    reader: str = ""

    @property
    def is_dump(self) -> bool:
        """Whether it is a graph that glowpy wrote, which has no shapes but its own."""
        return False

    @property
    def is_resizable(self) -> bool:
        """Whether `resized` gives inputs other sizes than it declares."""
        return False

    @property
    def keeps_caches(self) -> bool:
        """Whether outputs may be in the memory of inputs, and then are only in part written."""
        return False

    @property
    @abstractmethod
    def file(self) -> str:
        """The name of the model in messages."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """A name that is the same for models that are equal, and read alike."""

    @property
    def ways(self) -> str:
        """The ways in which it is read, as a part of the digest."""
        return "checked" * self.checked + "shared" * self.shares_caches

    @property
    def content(self) -> Content | None:
        """Names what the model is made of, by which a cache knows it again; None if that says too little.

        A model of which it is known is not opened by later sessions before something has to be built.
        """
        return None

    @property
    @abstractmethod
    def inputs(self) -> list[ValueInfo]:
        """The inputs, in the order of the model."""

    @property
    @abstractmethod
    def outputs(self) -> list[ValueInfo]:
        """The outputs, in the order of the model."""

    @abstractmethod
    def module(
        self, types: Sequence[Type], values: Mapping[str, Array], supposed: Mapping[str, Dim]
    ) -> Module:
        """Builds a module with one function, `main`, for inputs of these types.

        Its placeholders are the inputs and the outputs, by their names. The elements of `values` are known, and what is
        `supposed` of extents that elements decide is an assumption: see `importer.kit`.
        """

    @property
    def kept(self) -> StatePairs:
        """The inputs and outputs that are variables of the model's own, as those of graph text and of dumps are."""
        return {}

    @property
    def state(self) -> dict[str, str]:
        """The variables of its own, and among other inputs and outputs those that look like state."""
        kept = self.kept
        inputs, outputs = _declared(self.inputs), _declared(self.outputs)
        others = recognized_pairs(
            {name: declared for name, declared in inputs.items() if name not in kept},
            {name: declared for name, declared in outputs.items() if name not in kept.values()},
        )
        return {**kept, **others}

    def check_state(self, pairs: StatePairs) -> None:
        """Raises UserError that lists what is wrong with pairs of inputs and outputs."""
        check_pairs(pairs, _declared(self.inputs), _declared(self.outputs))

    def for_session(self, *, checked: bool, shares_caches: bool) -> Self:
        """The same model, for a session that checks indices or has caches in the memory of their past."""
        model = copy(self)
        model.checked, model.shares_caches = checked, self.shares_caches or shares_caches
        model.runs_rounds = not model.shares_caches
        return model

    def as_whole(self) -> Self:
        """The same model, for code that is to be all of it: loops are written out as long as they may be."""
        model = copy(self)
        model.runs_rounds = False
        return model

    def in_parts(self, error: RoundsError | ValueNeededError) -> HostedModel | None:
        """The same model, whose session runs what the error is about itself, round by round; None if none can.

        Where nothing can be run so, it has no steps of the session's.
        """
        del error
        return None

    def asks_for_rounds(self, error: ValueNeededError) -> bool:
        """Whether an error asks how often a loop of the model runs, rather than for what its body needs."""
        del error
        return False

    def resized(self, shapes: Mapping[str, Sequence[Dim | DeclaredDim]]) -> Model:
        """The model with inputs of these shapes, where they contradict sizes that it declares.

        Raises UserError for a name that is no input's, and for other sizes where it `is_resizable` not.
        """
        try:
            if shapes:  # else the inputs are perhaps not known
                check_admitted(self.inputs, shapes)
        except UserError as error:
            raise located(error, Loc(self.file)) from None
        return self

    def with_trainable(self, names: str | Sequence[str]) -> Model:
        """The model with weights that become variables: those of `trainable` of `glowpy.load`.

        Raises UserError for names of none, and for a format whose weights are named otherwise.
        """
        del names
        raise UserError(
            "expected a model in ONNX to name weights that are trained",
            loc=Loc(self.file),
            note="Module.make_variable makes variables of constants",
        )

    def without_trainable(self, error: ValueNeededError) -> Model:
        """The model with weights as constants whose elements an error asks for. Raises the error if there are none."""
        raise error

    def build(
        self,
        *,
        shapes: Mapping[str, Shape] | None = None,
        dims: Mapping[str, Dim] | None = None,
        values: Mapping[str, Array] | None = None,
        state: StatePairs | None = None,
        supposed: Mapping[str, Dim] | None = None,
    ) -> Module:
        """Builds a module for these shapes. The arguments and errors are those of `glowpy.load`."""
        from glowpy.graph.state import keep_state  # noqa: PLC0415 - graphs

        self.check_state(state or {})
        arrays = {name: np.array(array) for name, array in (values or {}).items()}
        with blamed(self.reader, Loc(self.file)):
            module = self.module(self.types(shapes, dims, arrays), arrays, supposed or {})
        keep_state(module.main, state or {})
        return module

    def key(
        self,
        *,
        shapes: Mapping[str, Shape] | None = None,
        dims: Mapping[str, Dim] | None = None,
        values: Mapping[str, Array] | None = None,
        state: StatePairs | None = None,
        supposed: Mapping[str, Dim] | None = None,
    ) -> str:
        """Names what `build` makes of the same arguments: equal for equal models, inputs, and values.

        Raises UserError for shapes that do not fit.
        """
        arrays = {name: np.asarray(array) for name, array in (values or {}).items()}
        types = self.types(shapes, dims, arrays)
        inputs = [(i.name, str(type)) for i, type in zip(self.inputs, types, strict=True)]
        numbers = [(name, array.tobytes().hex()) for name, array in arrays.items()]
        symbols = [(s.name, s.low, s.high, s.likely) for s in symbols_of_types(types).values()]
        guesses = [(name, str(d), lowest(d), highest(d)) for name, d in (supposed or {}).items()]
        return f"{self.digest} {inputs} {symbols} {numbers} {[*(state or {}).items()]} {guesses}"

    def types(
        self,
        shapes: Mapping[str, Shape] | None,
        dims: Mapping[str, Dim] | None,
        values: Mapping[str, Array],
    ) -> list[Type]:
        """The types of the inputs. Raises UserError for shapes that do not fit."""
        shapes_of_values = {name: array.shape for name, array in values.items()}
        try:
            given = {**shapes_of_values, **(shapes or {})}
            return bind(self.inputs, given, dims or {}, resizable=self.is_resizable)
        except UserError as error:
            raise located(error, Loc(self.file)) from None


def _declared(infos: Iterable[ValueInfo]) -> dict[str, Declared]:
    """The declared kinds and shapes of inputs or outputs, by name."""
    return {info.name: Declared(info.kind, info.shape) for info in infos}
