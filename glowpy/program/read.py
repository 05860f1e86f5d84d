"""Reads the source of a Python function into blocks.

Variables are slots. What a name outside of the function stands for is looked up once, when the function is read: a
number, an array, a function of numpy, or a function that is read as well. Functions that are defined inside take what
they use of the variables around them by value, as arguments that are given first.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any, final

import numpy as np

from glowpy.program.code import Block, Item, Literal, Operand, Operation, Slot
from glowpy.program.draft import Branch, Draft, Give, Hand, Jump, Link, assembled
from glowpy.program.expressions import ExpressionReader, Tree
from glowpy.program.source import Outside, argument_names, source_of
from glowpy.support.errors import UserError

__all__ = ["read"]


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
    block.defaults = function.__defaults__ or ()
    _FunctionReader(tree, block, outside, file, first).read(())
    return block


@final
class _FunctionReader(ExpressionReader):
    """Reads one function: its statements become drafts, one after the other."""

    def read_inner(self, node: Tree, block: Block, captured: Sequence[str], name: str) -> None:
        reader = _FunctionReader(node, block, self._outside, self._file, self._line)
        if name:
            reader._locals.add(name)
        reader.read(captured)

    def read_other(self, function: FunctionType) -> Block:
        return read(function, self._outside.known)

    def read(self, captured: Sequence[str]) -> None:
        """Fills the block. `captured` are variables around it, which it is given before its arguments."""
        given = self._tree.args
        if given.vararg or given.kwarg or given.kwonlyargs:
            raise self._refusal(self._tree, "arguments by position only")
        self._captured = tuple(captured)
        self._locals.update(captured)
        self._draft.parameters = (*captured, *argument_names(self._tree))
        self._block.parameters = self._draft.parameters
        if isinstance(self._tree, ast.Lambda):
            self._give(self._tree.body)
        else:
            self._statements(self._tree.body)
            if self._draft.end is None:
                self._draft.end = Give(Literal(None), self._loc(self._tree))
        assembled(self._drafts)

    # ------------------------------------------------------------------------------------------------- statements

    def _statements(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            if self._draft.end is not None:
                return  # after a return, break or continue
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        reader = _READERS.get(type(node))
        if reader is None:
            note = "assignments, if, while, for, def and return are compiled"
            raise self._refusal(node, "a statement that can be compiled", note)
        reader(self, node)

    def _return(self, node: ast.Return) -> None:
        if node.value is None:
            self._draft.end = Give(Literal(None), self._loc(node))
        else:
            self._give(node.value)

    def _assignment(self, node: ast.Assign) -> None:
        if len(node.targets) != 1:
            raise self._refusal(node, "one target of an assignment")
        self._assign(node.targets[0], node.value)

    def _annotated(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assign(node.target, node.value)

    def _augmented(self, node: ast.AugAssign) -> None:
        if not isinstance(node.target, ast.Name):
            note = "arrays are not changed; make a new one"
            raise self._refusal(node.target, "a variable to assign", note)
        read = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
        self._assign(node.target, ast.copy_location(ast.BinOp(read, node.op, node.value), node))

    def _definition(self, node: ast.FunctionDef) -> None:
        self._assign_operand(node.name, self._inner(node, node.name), node)

    def _nothing(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant):
            raise self._refusal(
                node, "a statement that does something", "what it computes is not used"
            )

    def _leave(self, node: ast.Break | ast.Continue) -> None:
        again, after = self._loops[-1]
        self._draft.end = Jump(after if isinstance(node, ast.Break) else again)

    def _give(self, node: ast.expr) -> None:
        """The result of the function; that of a call without a frame for it, in either part of a choice, too."""
        if isinstance(node, ast.IfExp):
            held, other = self._new("then", node), self._new("else", node)
            self._branch(node.test, held, other)
            for draft, part in ((held, node.body), (other, node.orelse)):
                self._draft = draft
                self._give(part)
            return
        if isinstance(node, ast.Call) and self._operator(node.func) is None:
            callee, arguments = self._call(node)
            self._draft.end = Hand(callee, tuple(arguments), self._loc(node))
            return
        result = self._expression(node)
        self._draft.end = Give(result, self._loc(node))

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._assign_operand(target.id, self._expression(value, target.id), target)
            return
        if not isinstance(target, ast.Tuple | ast.List):
            raise self._refusal(
                target, "a variable to assign", "arrays are not changed; make a new one"
            )
        names = [item.id for item in target.elts if isinstance(item, ast.Name)]
        if len(names) != len(target.elts) or len(set(names)) != len(names):
            raise self._refusal(target, "a tuple of different variables to assign")
        if isinstance(value, ast.Tuple) and len(value.elts) == len(names):
            operands = tuple([self._expression(item) for item in value.elts])
            self._draft.steps.append(Link(tuple(names), None, operands, self._loc(target)))
            return
        operand = self._kept(self._expression(value), value)
        for index, name in enumerate(names):
            self._link(Item(index, len(names), self._loc(target)), (operand,), target, name)

    def _if(self, node: ast.If) -> None:
        held, other, after = (self._new(part, node) for part in ("then", "else", "after"))
        self._branch(node.test, held, other)
        for draft, statements in ((held, node.body), (other, node.orelse)):
            self._draft = draft
            self._statements(statements)
            self._draft.end = self._draft.end or Jump(after)
        self._draft = after
        if not any(after in draft.followers for draft in self._drafts):
            after.end = Give(Literal(None), self._loc(node))  # nothing leads there

    def _while(self, node: ast.While) -> None:
        again, body, other, after = (
            self._new(part, node) for part in ("while", "body", "else", "after")
        )
        self._draft.end = Jump(again)
        self._draft = again
        self._branch(node.test, body, other)
        self._loop(node, body, again, after)
        self._draft = other
        self._statements(node.orelse)
        self._draft.end = self._draft.end or Jump(after)
        self._draft = after

    def _loop(self, node: ast.While | ast.For, body: Draft, again: Draft, after: Draft) -> None:
        self._draft = body
        self._loops.append((again, after))
        self._statements(node.body)
        self._loops.pop()
        self._draft.end = self._draft.end or Jump(again)

    def _for(self, node: ast.For) -> None:
        """Counts to the end of a range, or of a tensor, whose rows are taken one by one."""
        if not isinstance(node.target, ast.Name):
            raise self._refusal(node.target, "one variable to count with")
        test, body, step, other, after = (
            self._new(part, node) for part in ("for", "body", "step", "else", "after")
        )
        counter, (start, stop, stride), rows = self._temporary(), *self._range(node.iter)
        self._assign_operand(counter, start, node.iter)
        self._draft.end = Jump(test)
        self._draft = test
        ends = np.less if stride > 0 else np.greater
        condition = self._operation(ends, (Slot(counter), stop), node.iter)
        test.end = Branch(condition, body, other, self._loc(node.iter))
        self._draft = body
        if rows is None:
            self._assign_operand(node.target.id, Slot(counter), node.target)
        else:
            operation = Operation(
                node.target.id,
                "index",
                (rows, Slot(counter)),
                {"spec": ("given",)},
                self._loc(node.iter),
            )
            self._draft.steps.append(operation)
        self._loop(node, self._draft, step, after)
        self._draft = step
        self._operation(np.add, (Slot(counter), Literal(stride)), node.iter, counter)
        step.end = Jump(test)
        self._draft = other
        self._statements(node.orelse)
        self._draft.end = self._draft.end or Jump(after)
        self._draft = after

    def _range(self, node: ast.expr) -> tuple[tuple[Operand, Operand, int], Operand | None]:
        """Start, stop and step; and the tensor whose rows they count, if it is no range."""
        if not (isinstance(node, ast.Call) and self._static(node.func) is range):
            rows = self._kept(self._expression(node), node)
            length = self._named("len", (rows,), {}, node)
            return (Literal(0), length, 1), rows
        if node.keywords or not 1 <= len(node.args) <= 3:
            raise self._refusal(node, "a range of one to three integers")
        bounds = [self._kept(self._expression(argument), argument) for argument in node.args[:2]]
        stride = self._static(node.args[2]) if len(node.args) == 3 else 1
        if not isinstance(stride, int) or not stride:
            raise self._refusal(node, "a step that is a constant other than 0")
        return (*([Literal(0), *bounds] if len(bounds) == 1 else bounds), stride), None  # type: ignore[return-value]


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
    ast.Expr: _FunctionReader._nothing,
    ast.Break: _FunctionReader._leave,
    ast.Continue: _FunctionReader._leave,
}
