"""What the importer says of operators that a session computes is what sessions compute."""

from __future__ import annotations

from glowpy.importer import imported_operators
from glowpy.importer.onnx.host.operators import HOSTED_OPERATORS, SESSION_OPERATORS
from glowpy.session.host.registry import ruled


def test_the_importer_names_the_operators_of_sessions() -> None:
    """The importer, which knows no session, has tables of its own."""
    names = [name for _, name in HOSTED_OPERATORS]
    assert sorted(names) == ruled()
    assert {*SESSION_OPERATORS} == {*HOSTED_OPERATORS} - {*imported_operators()}
