"""What the importer says of operators that only a session computes is what sessions compute."""

from __future__ import annotations

from glowpy.importer import imported_operators
from glowpy.importer.onnx.session_operators import SESSION_OPERATORS
from glowpy.session.host.registry import ruled


def test_the_importer_names_the_operators_of_sessions_alone() -> None:
    """The importer, which knows no session, has a table of its own for its messages."""
    alone = {key: opsets[0] for key, opsets in ruled().items() if key not in imported_operators()}
    assert alone == SESSION_OPERATORS
