"""The environments of other processes: this Python's path for this Python only."""

import os
import sys

import pytest

from glowpy.support.children import child_environment


def test_the_path_is_for_this_python_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["", "/packages", f"/a{os.pathsep}b"])
    monkeypatch.delenv("PYTHONPATH", raising=False)
    own = child_environment([sys.executable, "-m", "ziglang"], TMPDIR="/scratch")
    assert own == {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([os.getcwd(), os.path.abspath("/packages")]),
        "TMPDIR": "/scratch",
    }
    assert child_environment(["cc"]) == os.environ
    monkeypatch.setenv("PYTHONPATH", "/given")
    assert child_environment(["/usr/bin/cc"], A="b") == {**os.environ, "A": "b"}
