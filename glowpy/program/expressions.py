"""Reads expressions: each becomes steps at the end of the draft that is written at the moment."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from glowpy.program.code import (
    Block,
    Call,
    Item,
    Literal,
    MakeTuple,
    Operand,
    Operation,
    Partial,
    Slot,
)
from glowpy.program.draft import Branch, Draft, Jump, Link
from glowpy.program.operators import bound_arguments, method_of, operator_of
from glowpy.program.source import UNKNOWN_VALUE, Outside, argument_names, assigned
from glowpy.support.errors import UserError
from glowpy.support.loc import Loc

__all__ = ["ExpressionReader", "Tree"]

Tree = ast.FunctionDef | ast.Lambda

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
    ast.Not: np.logical_not,
}


class ExpressionReader(ABC):
    """Reads the expressions of one function."""

    def __init__(
        self,
        tree: ast.FunctionDef | ast.Lambda,
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
        self._own = tree.name if isinstance(tree, ast.FunctionDef) else ""
        body = tree.body if isinstance(tree, ast.FunctionDef) else []
        self._assigned = assigned(body)
        self._locals = {*self._assigned, *argument_names(tree)}
        self._captured: tuple[str, ...] = ()
        self._draft = Draft(block)
        self._drafts = [self._draft]
        self._loops: list[tuple[Draft, Draft]] = []  # where continue and break lead
        self._temporaries = 0

    @abstractmethod
    def read_inner(self, node: Tree, block: Block, captured: Sequence[str], name: str) -> None:
        """Reads a function that is defined inside, and has the name there, into a block."""

    @abstractmethod
    def read_other(self, function: FunctionType) -> Block:
        """The block of a function around this one."""

    def _new(self, part: str, node: ast.AST) -> Draft:
        line = getattr(node, "lineno", 0) + self._line
        draft = Draft(Block(f"{self._block.name}.{line}.{part}"))
        self._drafts.append(draft)
        return draft

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
        if operand != Slot(name):
            self._draft.steps.append(Link((name,), None, (operand,), self._loc(node)))

    def _branch(self, test: ast.expr, held: Draft, other: Draft) -> None:
        condition = self._expression(test)
        self._draft.end = Branch(condition, held, other, self._loc(test))

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
            raise self._refusal(node, "an expression that can be compiled")
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
        return self._link(MakeTuple(len(node.elts)), self._expressions(node.elts), node, target)

    def _attribute(self, node: ast.Attribute, target: str) -> Operand:
        if node.attr != "T":
            raise self._refusal(
                node, "an attribute that can be compiled", "such as x.T or x.shape[0]"
            )
        return self._named("transpose", (self._expression(node.value),), {}, node, target)

    def _lambda(self, node: ast.Lambda, target: str) -> Operand:
        del target
        return self._inner(node, "")

    def _expressions(self, nodes: Sequence[ast.expr]) -> tuple[Operand, ...]:
        return tuple([self._expression(node) for node in nodes])

    def _variable(self, node: ast.Name, target: str) -> Operand:
        del target
        if node.id not in self._locals:
            raise UserError(f"'{node.id}' is not defined", loc=self._loc(node))
        if (
            node.id == self._own
            and node.id not in self._assigned
            and node.id not in argument_names(self._tree)
        ):
            return self._partial(
                self._block, self._captured, node
            )  # a function inside that calls itself
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
        """What numpy calls an operator."""
        function = _OPERATORS.get(type(op))
        if function is None:
            raise self._refusal(node, "an operator that can be compiled")
        return function

    def _operation(
        self, function: Any, operands: Sequence[Operand], node: ast.AST, target: str = ""
    ) -> Operand:
        name = operator_of(function)
        assert name is not None
        return self._named(name, operands, {}, node, target)

    def _named(
        self,
        operator: str,
        operands: Sequence[Operand],
        options: Mapping[str, Any],
        node: ast.AST,
        target: str = "",
    ) -> Operand:
        slot = target or self._temporary()
        operation = Operation(slot, operator, tuple(operands), options, self._loc(node))
        self._draft.steps.append(operation)
        return Slot(slot)

    def _link(
        self,
        instruction: Call | MakeTuple | Item | Partial,
        operands: Sequence[Operand],
        node: ast.AST,
        target: str = "",
    ) -> Operand:
        slot = target or self._temporary()
        self._draft.steps.append(Link((slot,), instruction, tuple(operands), self._loc(node)))
        return Slot(slot)

    def _compare(self, node: ast.Compare, target: str) -> Operand:
        if len(node.ops) > 1:
            raise self._refusal(node, "a comparison of two", "write a < b and b < c")
        operands = self._expressions([node.left, node.comparators[0]])
        return self._operation(self._function(node.ops[0], node), operands, node, target)

    def _bool(self, node: ast.BoolOp, target: str) -> Operand:
        """`a and b` is b where a holds, else a; b is computed only then."""
        del target
        *firsts, last = node.values
        first = (
            firsts[0] if len(firsts) == 1 else ast.copy_location(ast.BoolOp(node.op, firsts), node)
        )
        slot = self._temporary()
        self._assign_operand(slot, self._expression(first), node)
        held, after = self._new("more", node), self._new("after", node)
        ways = (held, after) if isinstance(node.op, ast.And) else (after, held)
        self._draft.end = Branch(Slot(slot), *ways, self._loc(node))
        self._draft = held
        self._assign_operand(slot, self._expression(last), node)
        self._draft.end = Jump(after)
        self._draft = after
        return Slot(slot)

    def _choice(self, node: ast.IfExp, target: str) -> Operand:
        del target
        slot = self._temporary()
        held, other, after = (self._new(part, node) for part in ("then", "else", "after"))
        self._branch(node.test, held, other)
        for draft, value in ((held, node.body), (other, node.orelse)):
            self._draft = draft
            self._assign_operand(slot, self._expression(value), node)
            self._draft.end = Jump(after)
        self._draft = after
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
            callee, arguments = self._call(node)
            return self._link(
                Call(len(arguments), self._loc(node)), (callee, *arguments), node, target
            )
        given = list(node.args)
        if self._static(node.func) is UNKNOWN_VALUE:
            assert isinstance(node.func, ast.Attribute)
            given.insert(0, node.func.value)
            if operator in ("reshape", "transpose") and len(given) > 2:  # x.reshape(2, 3)
                given[1:] = [ast.copy_location(ast.Tuple(given[1:], ast.Load()), node)]
        named = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        if len(named) != len(node.keywords):
            raise self._refusal(node, "arguments by name, not **")
        try:
            operands, options = bound_arguments(operator, given, named)
        except UserError as error:
            raise UserError(error.diagnostics[0].message, loc=self._loc(node)) from None
        known = {name: self._option(value) for name, value in options.items()}
        return self._named(operator, self._expressions(operands), known, node, target)

    def _option(self, node: ast.expr) -> Any:
        value = self._static(node)
        if value is UNKNOWN_VALUE:
            raise self._refusal(node, "an argument that is known while compiling")
        return value

    def _call(self, node: ast.Call) -> tuple[Operand, list[Operand]]:
        """A call of a function that is compiled: what is called, and all of its arguments."""
        if any(isinstance(argument, ast.Starred) for argument in node.args):
            raise self._refusal(node, "arguments one by one")
        static = self._static(node.func)
        if static is not UNKNOWN_VALUE and _function_in(static) is None:
            note = "functions of numpy that are compiled are listed in docs/functions.md"
            raise self._refusal(node.func, "a function that can be compiled", note)
        callee = self._expression(node.func)
        arguments = list(self._expressions(node.args))
        named = {keyword.arg: self._expression(keyword.value) for keyword in node.keywords}
        if isinstance(callee, Literal) and isinstance(callee.value, Block):
            for name in callee.value.parameters[len(arguments) :]:
                if name in named:
                    arguments.append(named.pop(name))
                elif name in callee.value.defaulted:
                    arguments.append(Literal(self._literal(callee.value.defaulted[name], node)))
        if named:
            raise self._refusal(node, f"arguments that the function has, not '{next(iter(named))}'")
        return callee, arguments

    def _inner(self, node: ast.FunctionDef | ast.Lambda, name: str) -> Operand:
        """A function that is defined inside, with what it uses of the variables around it."""
        own = {
            *argument_names(node),
            *(assigned(node.body) if isinstance(node, ast.FunctionDef) else ()),
        }
        used = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} - own - {name}
        captured = [slot for slot in sorted(used) if slot in self._locals]
        for slot in captured:
            if (
                slot in self._assigned
                and self._assigned[slot] + (slot in argument_names(self._tree)) > 1
            ):
                note = f"give '{slot}' as an argument"
                raise self._refusal(
                    node, f"variables around a function to be assigned once, not '{slot}'", note
                )
        line = node.lineno + self._line
        block = Block(f"{self._block.name}.{line}.{name or 'lambda'}")
        block.defaults = tuple([self._option(default) for default in node.args.defaults])
        self.read_inner(node, block, captured, name)
        return self._partial(block, captured, node)

    def _partial(self, block: Block, captured: Sequence[str], node: ast.AST) -> Operand:
        if not captured:
            return Literal(block)
        slots = [Slot(slot) for slot in captured]
        return self._link(Partial(len(captured)), (Literal(block), *slots), node)

    def _subscript(self, node: ast.Subscript, target: str) -> Operand:
        if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            base = self._expression(node.value.value)
            return self._named("extent", (base,), {"axis": self._option(node.slice)}, node, target)
        base = self._expression(node.value)
        places = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        spec: list[Any] = []
        given: list[Operand] = []
        for place in places:
            if isinstance(place, ast.Slice):
                bounds = (place.lower, place.upper, place.step)
                spec.append(
                    slice(*[None if bound is None else self._option(bound) for bound in bounds])
                )
                continue
            static = self._static(place)
            if static is UNKNOWN_VALUE:
                given.append(self._expression(place))
                spec.append("given")
            elif static is None or (isinstance(static, int) and not isinstance(static, bool)):
                spec.append(static)
            else:
                raise self._refusal(place, "an integer or a slice")
        return self._named("index", (base, *given), {"spec": tuple(spec)}, node, target)


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
