"""Checks of one ONNX node against the operator's schema, which the onnx package holds for every opset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
from onnx import AttributeProto, defs

from glowpy.core.type import Type
from glowpy.importer.declared import type_name
from glowpy.importer.onnx.attributes import unsupported_attributes
from glowpy.importer.onnx.contrib.schemas import UNCHECKED
from glowpy.importer.onnx.definition import is_defined, schema_of
from glowpy.importer.onnx.host.operators import is_of_sessions
from glowpy.importer.onnx.order import is_idle, named_subgraphs, place_of
from glowpy.importer.onnx.registry import handler_of, registered
from glowpy.importer.onnx.source import NEWEST_OPSETS, domain_of
from glowpy.importer.onnx.verdicts import (
    different_types,
    refused_operator,
    wrong_structure,
    wrong_type,
)
from glowpy.importer.reports import located
from glowpy.operators import operator_sets
from glowpy.support.errors import UnsupportedError, UserError
from glowpy.support.loc import Loc

__all__ = [
    "KNOWN_DOMAINS",
    "check_types",
    "node_problems",
    "refusal_verdict",
    "structural_problems",
    "unsupported_reason",
]

_SCHEMA_DOMAINS = frozenset(schema.domain for schema in defs.get_all_schemas())
"""The domains whose operators the onnx package knows; import functions of others stand for themselves."""

KNOWN_DOMAINS = frozenset({*_SCHEMA_DOMAINS, *NEWEST_OPSETS})
"""The domains whose operators mean the same as long as neither glowpy nor the onnx package is another one."""


def _spell(node: onnx.NodeProto, opset: int) -> str:
    domain = domain_of(node.domain)
    return f"{domain}{'.' if domain else ''}{node.op_type} (opset {opset})"


def unsupported_reason(node: onnx.NodeProto, opset: int | None) -> str:
    """Why a node cannot be imported, whatever its inputs are; empty if it can."""
    if opset is None:
        return f"{node.op_type}: the model imports no opset of the domain '{node.domain}'"
    is_imported = handler_of(domain_of(node.domain), node.op_type, opset) is not None
    if not is_imported and not is_defined(node, opset):
        if is_of_sessions(domain_of(node.domain), node.op_type, opset):
            return f"{_spell(node, opset)} is not supported by machine code: only a session computes it"
        return f"{_spell(node, opset)} is not supported"
    schema = schema_of(node, opset)
    if schema is not None and schema.deprecated and not _is_still_read(schema):
        return f"{_spell(node, opset)} is not supported: the operator ended before this opset"
    if schema is None:
        has_schema = domain_of(node.domain) in _SCHEMA_DOMAINS
        return (
            f"{_spell(node, opset)} is not supported: ONNX has no such operator"
            if has_schema
            else ""
        )
    unknown = [a.name for a in node.attribute if a.name not in schema.attributes]
    if unknown and (domain_of(node.domain), node.op_type) not in UNCHECKED:
        return f"{_spell(node, opset)}: {unsupported_attributes(unknown)}"
    return ""


def refusal_verdict(node: onnx.NodeProto, opset: int | None) -> str:
    """Returns onnxruntime's words for what `unsupported_reason` says; none for what a session could have computed."""
    domain = domain_of(node.domain)
    if opset is not None and is_of_sessions(domain, node.op_type, opset):
        return ""
    schema = None if opset is None else schema_of(node, opset)
    return refused_operator(node, opset, schema, is_standard=domain in _SCHEMA_DOMAINS)


def node_problems(
    node: onnx.NodeProto,
    loc: Loc,
    opsets: Mapping[str, int],
    deferred: dict[Loc, list[UserError]] | None = None,
) -> list[UserError]:
    """Lists the problems of a node that no shapes can change, and those of its graphs.

    Args:
        node: The node.
        loc: Where it is.
        opsets: The opsets of the model, by domain.
        deferred: Takes, where it is given, what is wrong with one branch of an If whose other branch can be taken.
    """
    if is_idle(node):
        return []
    opset = opsets.get(domain_of(node.domain))
    reason = unsupported_reason(node, opset)
    if reason or opset is None:
        note, verdict = _remedy(node, opset), refusal_verdict(node, opset)
        return [UnsupportedError(reason, loc=loc, note=note, verdict=verdict)]
    problems = [located(error, loc) for error in structural_problems(node, opset)]
    faulty = []
    for name, graph in named_subgraphs(node):
        wrong: list[UserError] = []
        for index, inner in enumerate(graph.node):
            place = place_of(inner, index, loc.file, f"{loc.node}/{name}")
            wrong += node_problems(inner, place, opsets, deferred)
        faulty += [wrong] if wrong else []
    if deferred is not None and node.op_type == "If" and len(faulty) == 1:
        for error in faulty.pop():
            deferred.setdefault(error.diagnostics[0].loc, []).append(error)
    return [*problems, *(error for wrong in faulty for error in wrong)]


def _remedy(node: onnx.NodeProto, opset: int | None) -> str:
    """The remedy for a node that cannot be imported, whatever its inputs are."""
    domain = domain_of(node.domain)
    if opset is None:
        return f"add the domain '{domain}' to the opset_import of the model"
    if is_of_sessions(domain, node.op_type, opset):
        session = "glowpy.InferenceSession and glowpy run take the model"
        if node.op_type == "ZipMap":
            return f"convert the model with options={{'zipmap': False}}; {session} as it is"
        return session
    if domain not in _SCHEMA_DOMAINS:
        operators = sorted(name for brought, name in registered() if brought == domain)
        if operators and domain not in KNOWN_DOMAINS:
            return _own_versions(domain, node.op_type, operators)
        return f"a package can bring the operators of '{domain}': see docs/operators.md"
    versions = registered().get((domain, node.op_type), [])
    if versions and opset < min(versions):
        return f"convert the model to opset {min(versions)} or newer"
    if schema_of(node, opset) is None:
        return "the operator is of another opset or domain, or its name is misspelled"
    if versions:
        return f"convert the model to the opset that it was written for{_or_mend(node, opset)}"
    return "export the model without the operator, or compute it outside of the model"


def _own_versions(domain: str, name: str, own: Sequence[str]) -> str:
    """Describes the operators of a domain that a package, or the program itself, has registered."""
    package = next((brought.package for brought in operator_sets() if brought.domain == domain), "")
    who = f"the package {package}" if package else "this program"
    if versions := registered().get((domain, name)):
        return f"{who} has it from opset {min(versions)} of '{domain}' on"
    return f"{who} has no such operator of '{domain}': there are {', '.join(own)}"


def _or_mend(node: onnx.NodeProto, opset: int) -> str:
    """The attributes that there are, for a name that is misspelled; empty for an operator that has ended."""
    schema = schema_of(node, opset)
    if schema is None or (schema.deprecated and not _is_still_read(schema)):
        return ""
    names = ", ".join(f"'{name}'" for name in sorted(schema.attributes)) or "none"
    return f", or mend the attribute's name: there are {names}"


def _is_still_read(schema: defs.OpSchema) -> bool:
    """Whether an import function is for the very version that ONNX has withdrawn: files have it all the same."""
    return schema.since_version in registered().get((schema.domain, schema.name), ())


def structural_problems(node: onnx.NodeProto, opset: int) -> list[UserError]:
    """Lists problems with the number of inputs and outputs and with the attributes of a node of a known operator."""
    schema = schema_of(node, opset)
    if schema is None:
        return []
    problems = []
    for what, got, least, most in (
        ("inputs", len(node.input), schema.min_input, schema.max_input),
        ("outputs", len(node.output), schema.min_output, schema.max_output),
    ):
        if not least <= got <= most:
            bounds = f"{least}" if least == most else f"{least} to {most}"
            bounds = f"at least {least}" if most > 1 << 20 else bounds
            problems.append(f"{node.op_type}: expected {bounds} {what}, got {got}")
    attributes = {attribute.name: attribute for attribute in node.attribute}
    if len(attributes) != len(node.attribute):
        problems.append(f"{node.op_type}: an attribute is given twice")
    kinds = {value: key for key, value in AttributeProto.AttributeType.items()}
    for name, attribute in schema.attributes.items():
        expected = str(attribute.type).rpartition(".")[2]
        if name not in attributes:
            if attribute.required and name != "consumed_inputs":
                problems.append(f"{node.op_type}: attribute '{name}' is required")
        elif (got := kinds.get(attributes[name].type, "nothing")) != expected:
            problems.append(f"{node.op_type}: attribute '{name}': expected {expected}, got {got}")
    verdict = wrong_structure(node, schema) if problems else ""
    return [UserError(problem, verdict=verdict) for problem in problems]


def check_types(node: onnx.NodeProto, opset: int, types: Sequence[Type | None]) -> None:
    """Raises UserError where the element kinds of the inputs are not those the schema allows.

    None among the types stands for a sequence, or for an input that is not given.
    """
    schema = schema_of(node, opset)
    if schema is None:
        return
    allowed = {
        constraint.type_param_str: constraint.allowed_type_strs
        for constraint in schema.type_constraints
    }
    bindings: dict[str, tuple[int, str]] = {}
    for index, type in enumerate(types):
        formal = schema.inputs[min(index, len(schema.inputs) - 1)]
        if type is None:
            continue
        name = type_name(type.kind)
        expected = allowed.get(formal.type_str, [formal.type_str])
        if name not in expected:
            raise UserError(
                f"expected {_short(expected)} as input {index} ('{node.input[index]}'), got {_short([name])}",
                verdict=wrong_type(node, node.input[index], name),
            )
        if formal.type_str in allowed and formal.is_homogeneous:
            first, seen = bindings.setdefault(formal.type_str, (index, name))
            if seen != name:
                raise UserError(
                    f"expected inputs {first} and {index} of one element type, got {_short([seen])}"
                    f" and {_short([name])}",
                    verdict=different_types(node, formal.type_str, seen, name),
                )


def _short(names: Sequence[str]) -> str:
    """The element types of tensors, without the word that all have in common."""
    tensors = sorted(name[7:-1] for name in names if name.startswith("tensor("))
    return ", ".join(tensors) or "a sequence"
