"""`Storages`: the constants, placeholders and variables of a module."""

from __future__ import annotations

from glowpy.core.initial import Initializer
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.graph.creation import no_memory, no_name, no_type
from glowpy.graph.node import Constant, Placeholder, Storage, Variable
from glowpy.support.errors import InternalError, UserError
from glowpy.support.loc import UNKNOWN, Loc, caller
from glowpy.support.names import UniqueNames

__all__ = ["Storages"]


class Storages:
    """Storages of a module: memory with names that are unique in it."""

    def __init__(self) -> None:
        self.names = UniqueNames()
        self._constants: dict[str, Constant] = {}
        self._placeholders: dict[str, Placeholder] = {}
        self._variables: dict[str, Variable] = {}

    @property
    def constants(self) -> list[Constant]:
        """All constants in order of creation."""
        return list(self._constants.values())

    @property
    def num_constants(self) -> int:
        """How many constants there are."""
        return len(self._constants)

    @property
    def placeholders(self) -> list[Placeholder]:
        """All placeholders in order of creation."""
        return list(self._placeholders.values())

    @property
    def variables(self) -> list[Variable]:
        """All variables in order of creation."""
        return list(self._variables.values())

    @property
    def stored(self) -> list[Constant]:
        """All that has elements: the constants, and as such the initial values of variables."""
        initial = (variable.initial for variable in self.variables)
        return [*self.constants, *(value for value in initial if isinstance(value, Constant))]

    @property
    def storages(self) -> list[Storage]:
        """Placeholders, then variables, then constants."""
        return [*self.placeholders, *self.variables, *self.constants]

    def storage(self, name: str) -> Storage | None:
        """The constant, placeholder or variable called `name`, or None."""
        tables = (self._constants, self._placeholders, self._variables)
        return next((table[name] for table in tables if name in table), None)

    def create_placeholder(
        self, name: str, type: Type, *, loc: Loc = UNKNOWN, original: str = ""
    ) -> Placeholder:
        """Adds a tensor that is bound at run time under `original`, or `name`; dumps make the name legal and unique.

        Raises UserError for a name that is no string and a type that is no `Type`.
        """
        if not isinstance(name, str):
            raise no_name(name, loc)
        if not isinstance(type, Type):
            raise no_type(type, loc)
        created = Placeholder(self.names.take(name), type, loc, original=original or name)
        self._placeholders[created.name] = created
        return created

    def create_variable(
        self,
        name: str,
        type: Type,
        memory: Type | None = None,
        *,
        loc: Loc = UNKNOWN,
        original: str = "",
        initial: Tensor | Array | Initializer | Constant | None = None,
    ) -> Variable:
        """Adds a tensor that outlives a run, in memory of the type `memory`, or else of its own type.

        Args:
            name: In dumps, where it is made legal and unique.
            type: The type that a run reads.
            memory: Where that lies, with room for all shapes.
            loc: Where it comes from.
            original: In the user's model, if that is another name.
            initial: The elements that the first run reads; zeros if left out. An array is copied.

        Raises UserError for a name that is no string, a type or memory that is no `Type`, and an initial value that
        does not fit.
        """
        if not isinstance(name, str):
            raise no_name(name, loc)
        if not isinstance(type, Type):
            raise no_type(type, loc)
        if memory is not None and not isinstance(memory, Type):
            raise no_memory(memory, loc)
        first = _initial(name, type, initial, loc)
        taken = self.names.take(name)
        variable = Variable(
            taken, type, memory or type, loc, original=original or name, initial=first
        )
        self._variables[variable.name] = variable
        return variable

    def begin(
        self, variable: Variable, initial: Tensor | Array | Initializer | Constant | None
    ) -> None:
        """Gives a variable another initial value; None is zeros. Raises UserError for one that does not fit."""
        variable.initial = _initial(variable.name, variable.type, initial, variable.loc)

    def make_variable(
        self, storage: Placeholder | Constant, memory: Type | None = None
    ) -> Variable:
        """Puts a variable of the same name and type in the place of a placeholder, or of a constant: its initial value.

        It lies in memory of its own type unless that of another is given.
        """
        initial = storage if isinstance(storage, Constant) else None
        del (self._placeholders if initial is None else self._constants)[storage.name]
        variable = Variable(
            *(storage.name, storage.type, memory or storage.type, storage.loc),
            original=storage.original,
            initial=initial,
        )
        self._variables[storage.name] = variable
        storage.value.replace_all_uses_with(variable.value)
        return variable

    def make_placeholder(self, variable: Variable) -> Placeholder:
        """Puts a placeholder of the same name and type in the place of a variable."""
        del self._variables[variable.name]
        name, original = variable.name, variable.original
        placeholder = Placeholder(name, variable.type, variable.loc, original=original)
        self._placeholders[name] = placeholder
        variable.value.replace_all_uses_with(placeholder.value)
        return placeholder

    def create_constant(self, name: str, tensor: Tensor | Array, *, loc: Loc = UNKNOWN) -> Constant:
        """Adds a tensor that is known now; an array is copied, so that its owner may change it afterwards.

        Raises UserError for a name that is no string, and for what is neither a tensor nor an array of numbers or
        booleans.
        """
        if not isinstance(name, str):
            raise no_name(name, loc)
        tensor = _tensor(tensor, loc)
        return self.add_constant(Constant(self.names.take(name), tensor, loc))

    def add_constant(self, constant: Constant) -> Constant:
        """Adds a constant whose name was taken from `names`."""
        self._constants[constant.name] = constant
        return constant

    def forget(self) -> None:
        """Lets go of the elements of all constants, of a module that is not used any more."""
        for constant in self.constants:
            constant.forget()

    def erase(self, storage: Storage) -> None:
        """Removes a storage nobody uses."""
        if storage.value.num_users:
            raise InternalError(
                f"%{storage.name} is erased but still used by {storage.value.users}"
            )
        if (constant := self._constants.pop(storage.name, None)) is not None:
            constant.forget()
        self._placeholders.pop(storage.name, None)
        self._variables.pop(storage.name, None)
        self.names.release(storage.name)


def _tensor(tensor: Tensor | Array, loc: Loc) -> Tensor:
    """A tensor as it is, an array as one of its own. Raises UserError for what is neither."""
    if isinstance(tensor, Tensor):
        return tensor
    try:
        return Tensor.of(tensor).copy()
    except UserError as error:
        first = error.diagnostics[0]
        raise UserError(first.message, loc=loc or caller(), note=first.note) from None


def _initial(
    name: str, type: Type, initial: Tensor | Array | Initializer | Constant | None, loc: Loc
) -> Constant | Initializer | None:
    """Checks the initial value of a variable. Raises UserError for one that does not fit its type."""
    if initial is None:
        return None
    if not type.is_static:
        raise UserError(
            f"expected a variable of one shape to have an initial value, got {type}", loc=loc
        )
    if isinstance(initial, Initializer):
        if not type.kind.is_float or type.quant is not None:
            raise UserError(f"expected floats to be random, got {type}", loc=loc)
        return initial
    if not isinstance(initial, Constant):
        initial = Constant(name, _tensor(initial, loc), loc)
    if initial.type != type:
        raise UserError(f"expected an initial value of type {type}, got {initial.type}", loc=loc)
    return initial
