"""Reads expressions: each becomes steps at the end of the open block that is written at the moment."""

from __future__ import annotations

import ast
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from glowpy.frontends.python.code import (
    Argument,
    Block,
    Call,
    Change,
    Cut,
    Literal,
    Load,
    MakeTuple,
    Operand,
    Operation,
    Pack,
    Partial,
    Slot,
)
from glowpy.frontends.python.open_block import Branch, Jump, Link, Linking, OpenBlock
from glowpy.frontends.python.operators import bound_arguments, method_of, operator_of
from glowpy.frontends.python.source import (
    UNKNOWN_VALUE,
    Outside,
    Tree,
    assigned,
    free_names,
    shared,
)
from glowpy.support.errors import UserError
from glowpy.support.loc import UNKNOWN, Loc

__all__ = ["ExpressionReader", "cell_name"]

_OPERATORS: Mapping[type[ast.AST], Any] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.true_divide,
    ast.FloorDiv: np.floor_divide,
    ast.Mod: np.mod,
    ast.Pow: np.power,
    ast.MatMult: np.matmul,
    ast.BitAnd: np.bitwise_and,
    ast.BitOr: np.bitwise_or,
    ast.BitXor: np.bitwise_xor,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.USub: np.negative,
    ast.Invert: np.invert,
    ast.Not: operator.not_,
}

_SUBSTITUTES: Mapping[type[ast.AST], str] = {
    ast.In: "compare with each value",
    ast.NotIn: "compare with each value",
    ast.Is: "compare values with ==",
    ast.IsNot: "compare values with !=",
    ast.LShift: "multiply by a power of 2",
    ast.RShift: "divide by a power of 2, with //",
}
"""Remedies for operators that are not compiled."""

_LOOP = "write a loop, or compute with whole arrays"

_REMEDIES: Mapping[type[ast.expr], str] = {
    ast.ListComp: _LOOP,
    ast.GeneratorExp: _LOOP,
    ast.SetComp: _LOOP,
    ast.DictComp: _LOOP,
    ast.Dict: "use a tuple",
    ast.Set: "use a tuple",
    ast.JoinedStr: "make texts where the function is called",
    ast.Yield: "give a tuple as the result",
    ast.YieldFrom: "give a tuple as the result",
    ast.Await: "await where the function is called",
    ast.NamedExpr: "assign in a statement of its own",
    ast.Starred: "write out what is in it, such as t[0], t[1]",
}
"""Remedies for expressions that are not compiled."""


class ExpressionReader(ABC):
    """Reads the expressions of one function."""

    def __init__(
        self,
        tree: Tree,
        block: Block,
        outside: Outside,
        file: str,
        line: int,
    ) -> None:
        self._tree = tree
        self._block = block
        self._outside = outside
        self._file = file
        self._line = line
        self._locals = assigned(tree)
        self._cells = shared(tree)
        self._current = OpenBlock(block)
        self._unfinished = [self._current]
        self._loops: list[tuple[OpenBlock, OpenBlock]] = []  # where continue and break lead
        self._temporaries = 0

    @abstractmethod
    def read_inner(self, node: Tree, block: Block, captured: Sequence[str]) -> None:
        """Reads a function that is defined inside into a block."""

    @abstractmethod
    def read_other(self, function: FunctionType) -> Block:
        """The block of a function around this one."""

    def _new(self, part: str, node: ast.AST) -> OpenBlock:
        line = getattr(node, "lineno", 0) + self._line
        open_block = OpenBlock(Block(f"{self._block.name}.{line}.{part}"))
        self._unfinished.append(open_block)
        return open_block

    def _loc(self, node: ast.AST) -> Loc:
        line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
        return Loc(self._file, line + self._line, column + 1)

    def _refusal(self, node: ast.AST, expected: str, note: str = "") -> UserError:
        got = ast.unparse(node).split("\n")[0]
        return UserError(f"expected {expected}, got '{got}'", loc=self._loc(node), note=note)

    def _temporary(self) -> str:
        self._temporaries += 1
        return f"t{self._temporaries}'"

    def _assign_operand(self, name: str, operand: Operand, node: ast.AST) -> None:
        if name in self._cells:
            cell = Slot(cell_name(name))
            self._current.steps.append(Link((), Change(), (cell, operand), self._loc(node)))
        elif operand != Slot(name):
            self._current.steps.append(Link((name,), None, (operand,), self._loc(node)))

    def _branch(self, test: ast.expr, then: OpenBlock, other: OpenBlock) -> None:
        condition = self._expression(test)
        self._current.end = Branch(condition, then, other, self._loc(test))

    def _kept(self, operand: Operand, node: ast.AST) -> Operand:
        """An operand that assignments to variables leave as it is."""
        if isinstance(operand, Slot) and operand.name in self._locals:
            copy = self._temporary()
            self._assign_operand(copy, operand, node)
            return Slot(copy)
        return operand

    # ------------------------------------------------------------------------------------------------ expressions

    def _expression(self, node: ast.expr, target: str = "") -> Operand:
        """Where the value of an expression is; in `target` if something computes it."""
        static = self._static(node)
        if static is not UNKNOWN_VALUE:
            return Literal(self._literal(static, node))
        reader = _READERS.get(type(node))
        if reader is None:
            note = _REMEDIES.get(type(node), "write it with arithmetic, calls and tuples")
            raise self._refusal(node, "an expression that can be compiled", note)
        operand: Operand = reader(self, node, target)
        return operand

    def _binary(self, node: ast.BinOp, target: str) -> Operand:
        operands = self._expressions([node.left, node.right])
        return self._operation(self._function(node.op, node), operands, node, target)

    def _unary(self, node: ast.UnaryOp, target: str) -> Operand:
        if isinstance(node.op, ast.UAdd):
            return self._expression(node.operand, target)
        operands = (self._expression(node.operand),)
        return self._operation(self._function(node.op, node), operands, node, target)

    def _tuple(self, node: ast.Tuple | ast.List, target: str) -> Operand:
        if any(isinstance(item, ast.Starred) for item in node.elts):
            return self._spread(node)
        return self._link(MakeTuple(len(node.elts)), self._expressions(node.elts), node, target)

    def _spread(self, node: ast.Tuple | ast.List) -> Operand:
        """A tuple with the items of others in it: the sum of its parts."""
        result: Operand = Literal(())
        for item in node.elts:
            part = self._packed(item.value if isinstance(item, ast.Starred) else ast.Tuple([item]))
            result = self._operation(np.add, (result, part), node)
        return result

    def _attribute(self, node: ast.Attribute, target: str) -> Operand:
        name = "transpose" if node.attr == "T" else node.attr
        if name not in ("transpose", "shape", "ndim", "size", "dtype"):
            note = "x.T, x.shape, x.ndim, x.size and x.dtype are compiled"
            raise self._refusal(node, "an attribute that can be compiled", note)
        return self._named(name, (self._expression(node.value),), {}, node, target)

    def _lambda(self, node: ast.Lambda, target: str) -> Operand:
        del target
        return self._inner(node, "")

    def _expressions(self, nodes: Sequence[ast.expr]) -> tuple[Operand, ...]:
        return tuple([self._expression(node) for node in nodes])

    def _variable(self, node: ast.Name, target: str) -> Operand:
        del target
        if node.id not in self._locals:
            raise UserError(f"'{node.id}' is not defined", loc=self._loc(node))
        if node.id in self._cells:
            return self._link(Load(node.id, self._loc(node)), (Slot(cell_name(node.id)),), node)
        return Slot(node.id)

    def _static(self, node: ast.expr) -> Any:
        """The Python object that an expression without variables stands for; else UNKNOWN_VALUE."""
        match node:
            case ast.Constant():
                return node.value
            case ast.Name() if node.id not in self._locals:
                return self._outside.find(node.id)
            case ast.Attribute():
                base = self._static(node.value)
                is_module = isinstance(base, ModuleType)
                return getattr(base, node.attr, UNKNOWN_VALUE) if is_module else UNKNOWN_VALUE
            case ast.UnaryOp(op=ast.USub()):
                number = self._static(node.operand)
                return -number if isinstance(number, int | float) else UNKNOWN_VALUE
            case ast.Tuple() | ast.List():
                items = [self._static(item) for item in node.elts]
                return (
                    UNKNOWN_VALUE if any(item is UNKNOWN_VALUE for item in items) else tuple(items)
                )
            case _:
                return UNKNOWN_VALUE

    def _literal(self, value: Any, node: ast.expr) -> Any:
        """A static object as the machine holds it."""
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, np.ndarray | np.generic):
            return np.array(value)
        if isinstance(value, tuple):
            return tuple([self._literal(item, node) for item in value])
        function = _function_in(value)
        if function is not None:
            return self.read_other(function)
        note = "numbers, arrays, functions of numpy and of yours are compiled"
        raise self._refusal(node, "something that can be compiled", note)

    def _function(self, op: ast.AST, node: ast.AST) -> Any:
        """Returns numpy's function for an operator."""
        function = _OPERATORS.get(type(op))
        if function is None:
            raise self._refusal(node, "an operator that can be compiled", _SUBSTITUTES[type(op)])
        return function

    def _operation(
        self, function: Any, operands: Sequence[Argument], node: ast.AST, target: str = ""
    ) -> Operand:
        name = operator_of(function)
        assert name is not None
        return self._named(name, operands, {}, node, target)

    def _named(
        self,
        operator: str,
        operands: Sequence[Argument],
        options: Mapping[str, Argument],
        node: ast.AST,
        target: str = "",
    ) -> Operand:
        slot = target or self._temporary()
        operation = Operation(slot, operator, tuple(operands), options, self._loc(node))
        self._current.steps.append(operation)
        return Slot(slot)

    def _link(
        self,
        instruction: Linking,
        operands: Sequence[Operand],
        node: ast.AST,
        target: str = "",
    ) -> Operand:
        slot = target or self._temporary()
        self._current.steps.append(Link((slot,), instruction, tuple(operands), self._loc(node)))
        return Slot(slot)

    def _compare(self, node: ast.Compare, target: str) -> Operand:
        """`a < b < c` is `a < b and b < c`, with b computed once."""
        if isinstance(node.ops[0], ast.Is | ast.IsNot):
            return self._identity(node, target)
        left = self._expression(node.left)
        if len(node.ops) == 1:
            operands = (left, self._expression(node.comparators[0]))
            return self._operation(self._function(node.ops[0], node), operands, node, target)
        lefts = [self._kept(left, node)]

        def compared(op: ast.cmpop, right: ast.expr) -> Operand:
            lefts.append(self._kept(self._expression(right), right))
            return self._operation(self._function(op, node), lefts[-2:], node)

        pairs = zip(node.ops, node.comparators, strict=True)
        return self._chain([partial(compared, *pair) for pair in pairs], node, until=False)

    def _identity(self, node: ast.Compare, target: str) -> Operand:
        if len(node.ops) > 1 or self._static(node.comparators[0]) is not None:
            raise self._refusal(node, "a comparison with None", "compare values with ==")
        name = "is_none" if isinstance(node.ops[0], ast.Is) else "is_not_none"
        return self._named(name, (self._expression(node.left),), {}, node, target)

    def _bool(self, node: ast.BoolOp, target: str) -> Operand:
        """`a and b` is b where a holds, else a; b is computed only then."""
        del target
        values = [partial(self._expression, value) for value in node.values]
        return self._chain(values, node, until=isinstance(node.op, ast.Or))

    def _chain(
        self, values: Sequence[Callable[[], Operand]], node: ast.expr, *, until: bool
    ) -> Operand:
        """The first value whose truth is `until`, or the last one; those after it are not computed."""
        slot, after = Slot(self._temporary()), self._new("after", node)
        for value in values[:-1]:
            self._assign_operand(slot.name, value(), node)
            more = self._new("more", node)
            ways = (after, more) if until else (more, after)
            self._current.end = Branch(slot, *ways, self._loc(node))
            self._current = more
        self._assign_operand(slot.name, values[-1](), node)
        self._current.end = Jump(after)
        self._current = after
        return slot

    def _choice(self, node: ast.IfExp, target: str) -> Operand:
        del target
        slot = self._temporary()
        then, other, after = (self._new(part, node) for part in ("then", "else", "after"))
        self._branch(node.test, then, other)
        for open_block, value in ((then, node.body), (other, node.orelse)):
            self._current = open_block
            self._assign_operand(slot, self._expression(value), node)
            self._current.end = Jump(after)
        self._current = after
        return Slot(slot)

    # ------------------------------------------------------------------------------------------------------ calls

    def _operator(self, function: ast.expr) -> str | None:
        """The name of the operator that is called, if it is one."""
        static = self._static(function)
        if static is not UNKNOWN_VALUE:
            return operator_of(static)
        return method_of(function.attr) if isinstance(function, ast.Attribute) else None

    def _called(self, node: ast.Call, target: str) -> Operand:
        operator = self._operator(node.func)
        if operator is None:
            callee, arguments, names = self._call(node)
            call = Call(len(arguments), names, self._loc(node))
            return self._link(call, (callee, *arguments), node, target)
        given = list(node.args)
        if self._static(node.func) is UNKNOWN_VALUE:
            assert isinstance(node.func, ast.Attribute)
            given.insert(0, node.func.value)
            if operator in ("reshape", "transpose") and len(given) > 2:  # x.reshape(2, 3)
                given[1:] = [ast.copy_location(ast.Tuple(given[1:], ast.Load()), node)]
        values = [keyword.value for keyword in node.keywords]
        named = dict(zip(self._named_arguments(node), values, strict=True))
        try:
            operands, options = bound_arguments(operator, given, named)
        except UserError as error:
            raise UserError(error.diagnostics[0].message, loc=self._loc(node)) from None
        packed = [self._packed(value) if value else Literal(None) for value in operands]
        option_values = {name: self._option(value) for name, value in options.items()}
        return self._named(operator, packed, option_values, node, target)

    def _packed(self, node: ast.expr) -> Argument:
        """An operand of an operator, which takes a tuple as it is written."""
        if isinstance(node, ast.Tuple | ast.List):
            if any(isinstance(item, ast.Starred) for item in node.elts):
                return self._spread(node)
            return Pack(tuple([self._packed(item) for item in node.elts]))
        return self._expression(node)

    def _option(self, node: ast.expr) -> Argument:
        value = self._static(node)
        return self._packed(node) if value is UNKNOWN_VALUE else Literal(value)

    def _call(self, node: ast.Call) -> tuple[Operand, tuple[Operand, ...], tuple[str, ...]]:
        """A call of a function that is compiled: what is called, its arguments, and the names of the last ones."""
        names = self._named_arguments(node)
        static = self._static(node.func)
        if static is not UNKNOWN_VALUE and _function_in(static) is None:
            note = "functions of numpy that are compiled are listed in docs/functions.md"
            raise self._refusal(node.func, "a function that can be compiled", note)
        if static is UNKNOWN_VALUE and isinstance(node.func, ast.Attribute):
            note = (
                "arrays and tuples are not changed; docs/functions.md lists the methods of arrays"
            )
            raise self._refusal(node.func, "a method that can be compiled", note)
        callee = self._expression(node.func)
        values = [*node.args, *(keyword.value for keyword in node.keywords)]
        return callee, self._expressions(values), names

    def _named_arguments(self, node: ast.Call) -> tuple[str, ...]:
        """The names of the last arguments. Raises UserError unless each argument is written."""
        names = tuple([keyword.arg for keyword in node.keywords if keyword.arg])
        if any(isinstance(argument, ast.Starred) for argument in node.args):
            note = "write out what is in it, such as f(t[0], t[1])"
            raise self._refusal(node, "arguments one by one", note)
        if len(names) != len(node.keywords):
            raise self._refusal(node, "arguments by name, not **", "write name=value")
        return names

    def _inner(self, node: Tree, name: str) -> Operand:
        """A function that is defined inside, with what it uses of the variables around it."""
        captured = sorted(free_names(node) & self._locals)
        line = node.lineno + self._line
        block = Block(f"{self._block.name}.{line}.{name or 'lambda'}")
        block.defaults = tuple([self._default(default) for default in node.args.defaults])
        self.read_inner(node, block, captured)
        if not captured:
            return Literal(block)
        slots = [Slot(parameter) for parameter in block.parameters[: len(captured)]]
        slot, partial = self._temporary(), Partial(len(captured))
        self._current.steps.append(Link((slot,), partial, (Literal(block), *slots), UNKNOWN))
        return Slot(slot)

    def _default(self, node: ast.expr) -> Any:
        value = self._static(node)
        if value is UNKNOWN_VALUE:
            note = "functions inside see the variables around them"
            raise self._refusal(node, "a default that is a constant", note)
        return self._literal(value, node)

    def _subscript(self, node: ast.Subscript, target: str) -> Operand:
        base = self._expression(node.value)
        places = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        operands = (base, *[self._place(place) for place in places])
        return self._named("index", operands, {}, node, target)

    def _place(self, node: ast.expr) -> Argument:
        if isinstance(node, ast.Slice):
            bounds = [
                Literal(None) if bound is None else self._expression(bound)
                for bound in (node.lower, node.upper, node.step)
            ]
            return Cut(tuple(bounds))
        static = self._static(node)
        if isinstance(static, bool | float):
            raise self._refusal(node, "an integer or a slice", "np.where chooses by a condition")
        return Literal(...) if static is ... else self._expression(node)


def cell_name(name: str) -> str:
    """The slot of the cell that holds a variable."""
    return f"&{name}"


def _function_in(value: Any) -> FunctionType | None:
    """A function of the user's, decorated or not; numpy's are operators, or not compiled."""
    function = getattr(value, "python_function", value)
    if not isinstance(function, FunctionType) or function.__module__.partition(".")[0] == "numpy":
        return None
    return function


_READERS: Mapping[type[ast.expr], Any] = {
    ast.Name: ExpressionReader._variable,
    ast.BinOp: ExpressionReader._binary,
    ast.UnaryOp: ExpressionReader._unary,
    ast.Compare: ExpressionReader._compare,
    ast.BoolOp: ExpressionReader._bool,
    ast.IfExp: ExpressionReader._choice,
    ast.Call: ExpressionReader._called,
    ast.Tuple: ExpressionReader._tuple,
    ast.List: ExpressionReader._tuple,
    ast.Subscript: ExpressionReader._subscript,
    ast.Attribute: ExpressionReader._attribute,
    ast.Lambda: ExpressionReader._lambda,
}
