"""What the importer says of operators that a session computes is what sessions compute."""

from __future__ import annotations

from glowpy.importer import imported_operators
from glowpy.importer.onnx.host.operators import SESSION_OPERATORS, SHARED_OPERATORS
from glowpy.session.host.registry import ruled


def test_the_importer_names_the_operators_of_sessions() -> None:
    """The importer, which knows no session, has tables of its own."""
    rules = {key: opsets[0] for key, opsets in ruled().items()}
    alone = {key: since for key, since in rules.items() if key not in imported_operators()}
    assert alone == SESSION_OPERATORS
    assert rules == SESSION_OPERATORS | SHARED_OPERATORS
