"""The backend for torch.compile, as an installation of this tree publishes it."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

_GROUP = "torch_dynamo_backends"


def publish() -> None:
    """Makes the name `glowpy` known to PyTorch, if what is installed is older than the entry point."""
    from torch import _dynamo as dynamo  # noqa: PLC0415 - optional and heavy

    if "glowpy" not in dynamo.list_backends():
        project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
        entry = project["project"]["entry-points"][_GROUP]["glowpy"]
        dynamo.register_backend(EntryPoint("glowpy", entry, _GROUP).load(), name="glowpy")
