"""What the importer says of operators that a session computes is what sessions compute."""

from __future__ import annotations

import pytest

from glowpy.importer import imported_operators
from glowpy.importer.onnx.contrib.schemas import CONTRIB, contrib_schema
from glowpy.importer.onnx.host.operators import HOSTED_OPERATORS, SESSION_OPERATORS
from glowpy.session.host.generation import BEAM_OPERANDS, SAMPLE_OPERANDS
from glowpy.session.host.registry import ruled


def test_the_importer_names_the_operators_of_sessions() -> None:
    """The importer, which knows no session, has tables of its own."""
    names = [name for _, name in HOSTED_OPERATORS]
    assert sorted(names) == ruled()
    assert {*SESSION_OPERATORS} == {*HOSTED_OPERATORS} - {*imported_operators()}


@pytest.mark.parametrize(
    "operator", ["BeamSearch", "WhisperBeamSearch", "GreedySearch", "Sampling"]
)
def test_sessions_name_operands_as_the_schema_does(operator: str) -> None:
    """A session takes them by place, and knows no schema."""
    schema = contrib_schema(CONTRIB, operator)
    assert schema is not None
    names = tuple(formal.name for formal in schema.inputs)
    operands = BEAM_OPERANDS if "Beam" in operator else SAMPLE_OPERANDS
    assert operands[: len(names)] == names
