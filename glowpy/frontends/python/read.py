"""Reads the source of a Python function into blocks.

Variables are slots. What a name outside of the function stands for is looked up once, when the function is read: a
number, an array, a function of numpy, or a function that is read as well. Functions that are defined inside take what
they use of the variables around them by value, as arguments that are given first.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import FunctionType
from typing import Any, TypeAlias, final

import numpy as np

from glowpy.frontends.python.code import Block, Item, Literal, MakeCell, MakeTuple, Operand, Slot
from glowpy.frontends.python.expressions import ExpressionReader, cell_name
from glowpy.frontends.python.open_block import (
    Branch,
    Jump,
    Link,
    OpenBlock,
    OpenReturn,
    OpenTailCall,
    assembled,
)
from glowpy.frontends.python.source import Outside, Tree, argument_names, source_of
from glowpy.support.errors import UserError

__all__ = ["read"]

Parts: TypeAlias = "Operand | tuple[Parts, ...]"
"""An assigned value: a single one, or parts of a tuple that is only made if a variable holds it."""

_NO_CHANGES = "arrays are not changed; make a new one"

_NO_STARS = "name each item, or take a slice"

_REMEDIES: Mapping[type[ast.stmt], str] = {
    ast.Raise: "give a number that says what is wrong, and raise where the function is called",
    ast.Assert: "give the condition as a second result, and check it where the function is called",
    ast.Try: "decide with if; glowpy's own errors end the call",
    ast.With: "enter the context where the function is called",
    ast.Import: "import in the module, outside of the function",
    ast.ImportFrom: "import in the module, outside of the function",
    ast.Global: "take the variable as an argument, and give its new value as a result",
    ast.Delete: "leave the variable as it is",
    ast.ClassDef: "use tuples and functions",
    ast.Match: "write if and elif",
}
"""Remedies for statements that are not compiled."""


@dataclass(frozen=True)
class _Turns:
    """The range of a loop, and its items in each turn: `parts`, given the variables they are assigned to."""

    start: Operand
    stop: Operand
    stride: int
    parts: Callable[[ast.expr | None], Parts]


def read(function: FunctionType, known: dict[FunctionType, Block]) -> Block:
    """The block that a function begins with; it and the functions it calls are added to those `known`.

    Raises UserError for source that cannot be found, and for what this subset of Python has not, with the line.
    """
    if function in known:
        return known[function]
    source, file, first = source_of(function)
    tree = ast.parse(source).body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise UserError(f"expected a function that 'def' defines, got '{function.__qualname__}'")
    block = known[function] = Block(function.__name__)
    outside = Outside(function, known)
    reader = _FunctionReader(tree, block, outside, file, first)
    defaults = zip(function.__defaults__ or (), tree.args.defaults, strict=True)
    block.defaults = tuple([reader._literal(value, node) for value, node in defaults])
    reader.read(())
    return block


@final
class _FunctionReader(ExpressionReader):
    """Reads one function: its statements become open blocks, one after the other."""

    def read_inner(self, node: Tree, block: Block, captured: Sequence[str]) -> None:
        reader = _FunctionReader(node, block, self._outside, self._file, self._line)
        reader._cells |= self._cells.intersection(captured)
        reader.read(captured)

    def read_other(self, function: FunctionType) -> Block:
        return read(function, self._outside.known)

    def read(self, captured: Sequence[str]) -> None:
        """Fills the block. `captured` are variables around it, which it is given before its arguments."""
        given = self._tree.args
        if given.vararg or given.kwarg or given.kwonlyargs:
            note = "without * and **; any argument can be given by its name"
            raise self._refusal(self._tree, "a function of plain arguments", note)
        cells = sorted(self._cells.difference(captured))
        self._locals.update(captured)
        slots = [cell_name(name) if name in self._cells else name for name in captured]
        arguments = argument_names(self._tree)
        self._current.parameters = self._block.parameters = (*slots, *arguments)
        for name in cells:
            self._current.steps.append(
                Link((cell_name(name),), MakeCell(), (), self._loc(self._tree))
            )
            if name in arguments:
                self._assign_operand(name, Slot(name), self._tree)
        if isinstance(self._tree, ast.Lambda):
            self._give(self._tree.body)
        else:
            self._statements(self._tree.body)
            if self._current.end is None:
                self._current.end = OpenReturn(Literal(None), self._loc(self._tree))
        assembled(self._unfinished)

    # ------------------------------------------------------------------------------------------------- statements

    def _statements(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            if self._current.end is not None:
                return  # after a return, break or continue
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        reader = _READERS.get(type(node))
        if reader is None:
            note = _REMEDIES.get(
                type(node), "assignments, if, while, for, def and return are compiled"
            )
            raise self._refusal(node, "a statement that can be compiled", note)
        reader(self, node)

    def _return(self, node: ast.Return) -> None:
        if node.value is None:
            self._current.end = OpenReturn(Literal(None), self._loc(node))
        else:
            self._give(node.value)

    def _assignment(self, node: ast.Assign) -> None:
        if len(node.targets) == 1:
            self._assign(node.targets[0], node.value)
            return
        value = self._kept(self._expression(node.value), node.value)
        for target in node.targets:
            self._bind(target, value)

    def _annotated(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assign(node.target, node.value)

    def _augmented(self, node: ast.AugAssign) -> None:
        if not isinstance(node.target, ast.Name):
            raise self._refusal(node.target, "a variable to assign", _NO_CHANGES)
        read = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
        self._assign(node.target, ast.copy_location(ast.BinOp(read, node.op, node.value), node))

    def _definition(self, node: ast.FunctionDef) -> None:
        if node.decorator_list:
            note = "what a decorator adds would not be compiled"
            raise self._refusal(node.decorator_list[0], "a function without decorators", note)
        self._assign_operand(node.name, self._inner(node, node.name), node)

    def _nothing(self, node: ast.stmt) -> None:
        del node

    def _effect(self, node: ast.Expr) -> None:
        """A call of a function, which may assign variables around it; or a docstring."""
        is_call = isinstance(node.value, ast.Call) and self._operator(node.value.func) is None
        if is_call or isinstance(node.value, ast.Yield | ast.YieldFrom | ast.Await):
            self._expression(node.value)
        elif not isinstance(node.value, ast.Constant):
            note = "what it computes is not used"
            raise self._refusal(node, "a statement that does something", note)

    def _leave(self, node: ast.Break | ast.Continue) -> None:
        again, after = self._loops[-1]
        self._current.end = Jump(after if isinstance(node, ast.Break) else again)

    def _give(self, node: ast.expr) -> None:
        """The result of the function; that of a call without a frame for it, in either part of a choice, too."""
        if isinstance(node, ast.IfExp):
            then, other = self._new("then", node), self._new("else", node)
            self._branch(node.test, then, other)
            for open_block, part in ((then, node.body), (other, node.orelse)):
                self._current = open_block
                self._give(part)
            return
        if isinstance(node, ast.Call) and self._operator(node.func) is None:
            self._current.end = OpenTailCall(*self._call(node), self._loc(node))
            return
        result = self._expression(node)
        self._current.end = OpenReturn(result, self._loc(node))

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            operand = self._expression(value, self._slot(target))
            self._assign_operand(target.id, operand, target)
            return
        if not isinstance(target, ast.Tuple | ast.List):
            note = _NO_STARS if isinstance(target, ast.Starred) else _NO_CHANGES
            raise self._refusal(target, "a variable to assign", note)
        if not isinstance(value, ast.Tuple | ast.List) or len(value.elts) != len(target.elts):
            self._bind(target, self._kept(self._expression(value), value))
            return
        names = [item.id for item in target.elts if isinstance(item, ast.Name)]
        if len({*names} - self._cells) == len(target.elts):
            operands = tuple([self._expression(item) for item in value.elts])
            self._current.steps.append(Link(tuple(names), None, operands, self._loc(target)))
        else:
            self._bind(
                target, tuple([self._kept(self._expression(item), item) for item in value.elts])
            )

    def _bind(self, target: ast.expr, parts: Parts) -> None:
        """Assigns what nothing changes meanwhile to a variable, or to a tuple of such."""
        if isinstance(target, ast.Name):
            self._assign_operand(target.id, self._joined(parts, target), target)
            return
        if not isinstance(target, ast.Tuple | ast.List):
            note = _NO_STARS if isinstance(target, ast.Starred) else _NO_CHANGES
            raise self._refusal(target, "a variable to assign", note)
        count = len(target.elts)
        if isinstance(parts, tuple) and len(parts) == count:
            for item, part in zip(target.elts, parts, strict=True):
                self._bind(item, part)
            return
        operand = self._joined(parts, target)
        for index, item in enumerate(target.elts):
            take = Item(index, count, self._loc(target))
            self._bind(item, self._link(take, (operand,), target, self._slot(item)))

    def _joined(self, parts: Parts, node: ast.expr) -> Operand:
        if not isinstance(parts, tuple):
            return parts
        operands = tuple([self._joined(part, node) for part in parts])
        return self._link(MakeTuple(len(operands)), operands, node)

    def _slot(self, target: ast.expr | None) -> str:
        """The slot of a variable that is assigned, which a step may store; empty for all other targets."""
        if isinstance(target, ast.Name) and target.id not in self._cells:
            return target.id
        return ""

    def _if(self, node: ast.If) -> None:
        then, other, after = (self._new(part, node) for part in ("then", "else", "after"))
        self._branch(node.test, then, other)
        for open_block, statements in ((then, node.body), (other, node.orelse)):
            self._current = open_block
            self._statements(statements)
            self._current.end = self._current.end or Jump(after)
        self._current = after
        if not any(after in open_block.followers for open_block in self._unfinished):
            after.end = OpenReturn(Literal(None), self._loc(node))  # nothing leads there

    def _while(self, node: ast.While) -> None:
        again, body, other, after = (
            self._new(part, node) for part in ("while", "body", "else", "after")
        )
        self._current.end = Jump(again)
        self._current = again
        self._branch(node.test, body, other)
        self._loop(node, body, again, after)
        self._current = other
        self._statements(node.orelse)
        self._current.end = self._current.end or Jump(after)
        self._current = after

    def _loop(
        self, node: ast.While | ast.For, body: OpenBlock, again: OpenBlock, after: OpenBlock
    ) -> None:
        self._current = body
        self._loops.append((again, after))
        self._statements(node.body)
        self._loops.pop()
        self._current.end = self._current.end or Jump(again)

    def _for(self, node: ast.For) -> None:
        """Counts to the end of a range; or to that of tuples, and of tensors, whose rows are taken one by one."""
        test, body, step, other, after = (
            self._new(part, node) for part in ("for", "body", "step", "else", "after")
        )
        counter = Slot(self._temporary())
        is_range = isinstance(node.iter, ast.Call) and self._static(node.iter.func) is range
        turns = self._range(node.iter, counter) if is_range else self._turns(node.iter, counter)
        self._assign_operand(counter.name, turns.start, node.iter)
        self._current.end = Jump(test)
        self._current = test
        ends = np.less if turns.stride > 0 else np.greater
        condition = self._operation(ends, (counter, turns.stop), node.iter)
        test.end = Branch(condition, body, other, self._loc(node.iter))
        self._current = body
        self._bind(node.target, turns.parts(node.target))
        self._loop(node, self._current, step, after)
        self._current = step
        self._operation(np.add, (counter, Literal(turns.stride)), node.iter, counter.name)
        step.end = Jump(test)
        self._current = other
        self._statements(node.orelse)
        self._current.end = self._current.end or Jump(after)
        self._current = after

    def _range(self, node: ast.expr, counter: Slot) -> _Turns:
        assert isinstance(node, ast.Call)
        if node.keywords or not 1 <= len(node.args) <= 3:
            raise self._refusal(node, "a range of one to three integers", "without names")
        bounds = [self._kept(self._expression(argument), argument) for argument in node.args[:2]]
        stride = self._static(node.args[2]) if len(node.args) == 3 else 1
        if not isinstance(stride, int) or not stride:
            note = "count with while"
            raise self._refusal(node, "a step that is a constant other than 0", note)
        return _Turns(
            Literal(0) if len(bounds) == 1 else bounds[0],
            bounds[-1],
            stride,
            lambda target: counter,
        )

    def _turns(self, node: ast.expr, counter: Slot) -> _Turns:
        """Those of a loop over a tuple or a tensor, or over `enumerate` and `zip` of such."""
        callee = self._static(node.func) if isinstance(node, ast.Call) else None
        if not isinstance(node, ast.Call) or callee not in (enumerate, zip):
            return self._rows(node, counter)
        named = [
            k for k in node.keywords if k.arg != "strict" or self._static(k.value) is not False
        ]
        most = 2 if callee is enumerate else len(node.args)
        if named or not 1 <= len(node.args) <= most:
            note = "zip takes no strict=True"
            raise self._refusal(node, "what to loop over, by position", note)
        if callee is zip:
            inner = [self._turns(argument, counter) for argument in node.args]
        else:
            first, rest = node.args[0], node.args[1:]
            start = self._kept(self._expression(rest[0]), node) if rest else Literal(0)
            rows = self._turns(first, counter)
            inner = [replace(rows, parts=partial(self._count, node, counter, start)), rows]
        stop = inner[0].stop
        for other in inner[1:]:
            stop = self._operation(np.minimum, (stop, other.stop), node)

        def parts(target: ast.expr | None) -> Parts:
            items: Sequence[ast.expr | None] = [None] * len(inner)
            if isinstance(target, ast.Tuple | ast.List) and len(target.elts) == len(inner):
                items = target.elts
            return tuple([turns.parts(item) for turns, item in zip(inner, items, strict=True)])

        return _Turns(Literal(0), stop, 1, parts)

    def _count(
        self, node: ast.expr, counter: Slot, start: Operand, target: ast.expr | None
    ) -> Parts:
        return self._operation(np.add, (counter, start), node, self._slot(target))

    def _rows(self, node: ast.expr, counter: Slot) -> _Turns:
        rows = self._kept(self._expression(node), node)
        length = self._named("len", (rows,), {}, node)
        return _Turns(
            Literal(0),
            length,
            1,
            lambda target: self._named("row", (rows, counter), {}, node, self._slot(target)),
        )


_READERS: Mapping[type[ast.stmt], Any] = {
    ast.Return: _FunctionReader._return,
    ast.Assign: _FunctionReader._assignment,
    ast.AnnAssign: _FunctionReader._annotated,
    ast.AugAssign: _FunctionReader._augmented,
    ast.If: _FunctionReader._if,
    ast.While: _FunctionReader._while,
    ast.For: _FunctionReader._for,
    ast.FunctionDef: _FunctionReader._definition,
    ast.Pass: _FunctionReader._nothing,
    ast.Nonlocal: _FunctionReader._nothing,
    ast.Expr: _FunctionReader._effect,
    ast.Break: _FunctionReader._leave,
    ast.Continue: _FunctionReader._leave,
}
