"""`Storages`: the constants, placeholders and variables of a module."""

from __future__ import annotations

from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.graph.creation import no_name, no_type
from glowpy.graph.node import Constant, Placeholder, Storage, Variable
from glowpy.support.errors import InternalError, UserError
from glowpy.support.loc import UNKNOWN, Loc, caller
from glowpy.support.names import UniqueNames

__all__ = ["Storages"]


class Storages:
    """What a module has beside functions: memory with names that are unique in it."""

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
    ) -> Variable:
        """Adds a tensor that outlives a run, in memory of the type `memory`, or else of its own type.

        The user's model calls it `original`, if that is another name.

        Raises UserError for a name that is no string and a type that is no `Type`.
        """
        if not isinstance(name, str):
            raise no_name(name, loc)
        if not isinstance(type, Type):
            raise no_type(type, loc)
        taken = self.names.take(name)
        variable = Variable(taken, type, memory or type, loc, original=original or name)
        self._variables[variable.name] = variable
        return variable

    def make_variable(self, placeholder: Placeholder, memory: Type) -> Variable:
        """Puts a variable of the same name and type in the place of a placeholder."""
        del self._placeholders[placeholder.name]
        name, original = placeholder.name, placeholder.original
        variable = Variable(name, placeholder.type, memory, placeholder.loc, original=original)
        self._variables[name] = variable
        placeholder.value.replace_all_uses_with(variable.value)
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
        if not isinstance(tensor, Tensor):
            try:
                tensor = Tensor.of(tensor).copy()
            except UserError as error:
                first = error.diagnostics[0]
                raise UserError(first.message, loc=loc or caller(), note=first.note) from None
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
