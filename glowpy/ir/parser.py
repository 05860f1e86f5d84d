"""Reads the text that `printer` writes."""

from __future__ import annotations

from collections.abc import Mapping

from glowpy.core.schema import InstSchema, check_attrs
from glowpy.core.type import read_type
from glowpy.ir.inst import Instruction, ValueInstruction
from glowpy.ir.insts_gen import INSTS
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.run import Run
from glowpy.ir.value import Mutability, Value
from glowpy.support.errors import UserError
from glowpy.support.text import Attr, Lexer, Token

__all__ = ["parse_irfunction", "read_irfunction"]

InstClasses = Mapping[str, type[Instruction]]


def parse_irfunction(
    text: str, file: str = "<text>", extra: tuple[type[Instruction], ...] = ()
) -> IRFunction:
    """The function that `text` spells; `extra` are backend-specific instruction classes.

    Raises UserError with line, column and caret.
    """
    lexer = Lexer(text, file)
    f = read_irfunction(lexer, extra)
    if lexer.peek.kind != "end":
        raise lexer.error(f"unexpected '{lexer.peek.text}' after the function")
    return f


def read_irfunction(lexer: Lexer, extra: tuple[type[Instruction], ...] = ()) -> IRFunction:
    """Consumes one function, and before it those that it calls."""
    callees: dict[str, IRFunction] = {}
    while (f := _read_one(lexer, extra, callees)).gives:
        if f.name in callees:
            raise lexer.error(f"function @{f.name} exists already")
        callees[f.name] = f
        if lexer.peek.kind == "end":
            raise lexer.error(f"expected a function that no other calls after @{f.name}")
    return f


def _read_one(
    lexer: Lexer, extra: tuple[type[Instruction], ...], callees: Mapping[str, IRFunction]
) -> IRFunction:
    classes = {cls.SCHEMA.mnemonic: cls for cls in (*INSTS, *extra)}
    lexer.symbols.clear()
    lexer.expect("irfunction")
    name = lexer.take("symbol")[1:]
    takes: list[str] = []
    gives: list[str] = []
    if lexer.at("("):
        takes = _read_names(lexer)
        lexer.expect("-")
        lexer.expect(">")
        at = lexer.peek
        gives = _read_names(lexer)
        if not gives:
            raise lexer.error("expected what a function that others call gives them", at)
    f = IRFunction(name, takes, gives)
    f.callees.update(callees)
    values: dict[str, Value] = {}
    lexer.expect("{")
    lexer.declarations()
    lexer.expect("declare")
    while lexer.peek.kind == "value":
        _read_weight(lexer, f, values)
    lexer.expect("program")
    runs: list[Run] = []
    while not lexer.at("}"):
        if lexer.at("run"):
            runs.append(_read_run(lexer, f, values, classes))
        else:
            _read_inst(lexer, f, values, classes)
    lexer.expect("}")
    f.group(runs)
    return f


def _read_names(lexer: Lexer) -> list[str]:
    """Reads the names that a function takes, or those that it gives."""
    names: list[str] = []
    lexer.expect("(")
    while not lexer.at(")"):
        names.append(lexer.take("value")[1:])
        if not lexer.accept(","):
            break
    lexer.expect(")")
    return names


def _define(lexer: Lexer, token: Token, values: dict[str, Value], value: Value) -> None:
    if token.text[1:] in values:
        raise lexer.error(f"{token.text} is defined twice", token)
    values[token.text[1:]] = value


def _read_weight(lexer: Lexer, f: IRFunction, values: dict[str, Value]) -> None:
    token = lexer.next()
    lexer.expect("=")
    lexer.expect("weight")
    type = read_type(lexer)
    word = lexer.peek
    try:
        mutability = Mutability(lexer.take("word"))
    except ValueError:
        raise lexer.error(f"expected 'constant' or 'mutable', got '{word.text}'", word) from None
    _define(lexer, token, values, f.create_weight(token.text[1:], type, mutability))


def _read_run(lexer: Lexer, f: IRFunction, values: dict[str, Value], classes: InstClasses) -> Run:
    lexer.expect("run")
    name = lexer.take("symbol")[1:]
    lexer.expect("{")
    start = len(f.instructions)
    while not lexer.at("}"):
        _read_inst(lexer, f, values, classes)
    if len(f.instructions) == start:
        raise lexer.error(f"expected instructions in run @{name}")
    lexer.expect("}")
    return Run(name, tuple(f.instructions[start:]))


def _read_inst(lexer: Lexer, f: IRFunction, values: dict[str, Value], classes: InstClasses) -> None:
    start = lexer.peek
    name: Token | None = None
    if lexer.peek.kind == "value":
        name = lexer.next()
        lexer.expect("=")
    mnemonic = lexer.peek
    cls = classes.get(lexer.take("word"))
    if cls is None:
        raise lexer.unknown("instruction", mnemonic, classes)
    loc = lexer.loc(start)
    if issubclass(cls, ValueInstruction) != (name is not None):
        raise lexer.error(
            f"'{mnemonic.text}' {'needs' if name is None else 'has no'} result name", start
        )
    type = read_type(lexer) if name is not None else None
    if type is not None:
        lexer.accept(",")
    read, predicate = _read_operands(lexer, cls.SCHEMA, values)
    if predicate is not None and name is not None:
        raise lexer.error(f"{mnemonic.text}: expected no predicate: memory has none", mnemonic)
    attrs = _read_attrs(lexer, cls.SCHEMA, mnemonic)
    operands = _checked(lexer, cls.SCHEMA, read, attrs, mnemonic)
    if name is not None and type is not None and issubclass(cls, ValueInstruction):
        inst = cls(operands, attrs, name=f.fresh_name(name.text[1:]), type=type, loc=loc)
        _define(lexer, name, values, f.add(inst).value)
    else:
        f.add(cls(operands, attrs, loc=loc, predicate=predicate))


def _read_operands(
    lexer: Lexer, schema: InstSchema, values: dict[str, Value]
) -> tuple[list[tuple[Token, Value]], Value | None]:
    operands: list[tuple[Token, Value]] = []
    predicate: Value | None = None
    while lexer.peek.kind == "symbol":
        access = lexer.next()
        token = lexer.peek
        value = values.get(lexer.take("value")[1:])
        if value is None:
            raise lexer.error(f"{token.text} is not defined", token)
        if access.text == "@predicate":
            predicate = value
        elif len(operands) == len(schema.operands) and not schema.variadic:
            raise lexer.error(
                f"{schema.mnemonic}: expected {len(schema.operands)} operands, got more", access
            )
        else:
            operands.append((access, value))
        if not lexer.accept(","):
            break
    if len(operands) != len(schema.operands) and not schema.variadic:
        raise lexer.error(
            f"{schema.mnemonic}: expected {len(schema.operands)} operands, got {len(operands)}"
        )
    return operands, predicate


def _checked(
    lexer: Lexer,
    schema: InstSchema,
    operands: list[tuple[Token, Value]],
    attrs: Mapping[str, Attr],
    at: Token,
) -> list[Value]:
    """The values, if they are accessed as the schema says."""
    try:
        specs = schema.operands_of(len(operands), attrs)
    except UserError as error:
        message = f"{schema.mnemonic}: {error.diagnostics[0].message}"
        raise lexer.error(message, at) from None
    for spec, (access, _) in zip(specs, operands, strict=True):
        if spec.access.value != access.text:
            raise lexer.error(
                f"{schema.mnemonic}: expected {spec.access.value} for {spec.name}, got {access.text}",
                access,
            )
    return [value for _, value in operands]


def _read_attrs(lexer: Lexer, schema: InstSchema, at: Token) -> dict[str, Attr]:
    attrs = lexer.attrs()
    try:
        return check_attrs(schema.attrs, attrs)
    except UserError as error:
        raise lexer.error(f"{schema.mnemonic}: {error.diagnostics[0].message}", at) from None
