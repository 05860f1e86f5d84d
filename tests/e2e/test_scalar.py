"""((x - 2) + 5) + 100 on an int32 is one addition, in the graph and in the machine."""

import io
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import glowpy
from glowpy.cli.main import run
from glowpy.engine import compilation
from glowpy.graph.printer import print_module
from tests.e2e.models import integers


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "integers.glow"
    path.write_text(print_module(integers()))
    return str(path)


def assembly(model: str, *options: str) -> list[str]:
    """The instructions of the entry point."""
    stream = io.StringIO()
    status = run(["dump", model, "--stage", "asm", *options], io.StringIO(), stream)
    assert status == 0, stream.getvalue()
    body = re.search(r"^glowpy_integers:\n(.*?)^\.?L?func_end", stream.getvalue(), re.M | re.S)
    text = body[1] if body else stream.getvalue().partition("glowpy_integers:\n")[2]
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith((".", "#", "@", "//"))]


def test_the_graph_has_one_addition() -> None:
    f = compilation(integers().main).lowered
    (add,) = [node for node in f.nodes if node.SCHEMA.mnemonic in ("add", "sub")]
    assert add.SCHEMA.mnemonic == "add"
    values = [
        value.constant.array.item() if value.constant else getattr(value.node, "value", None)
        for value in add.inputs
    ]
    assert 103 in values


def test_x86_64_has_one_addition(model: str) -> None:
    code = assembly(model, "--target", "x86_64-unknown-linux-gnu")
    assert len([line for line in code if re.match(r"(lea|add)", line)]) == 1, code
    assert not [line for line in code if re.match(r"(sub|dec|inc|call)", line)], code
    assert any("103" in line for line in code), code


@pytest.mark.parametrize(
    ("target", "addition"),
    [
        ("armv7-linux-gnueabihf", r"add\s+r\d+, r\d+, #103"),
        ("aarch64-linux-gnu", r"add\s+w\d+, w\d+, #103"),
        ("powerpc64le-linux-gnu", r"addi\s+\d+, \d+, 103"),
    ],
)
def test_other_machines(model: str, target: str, addition: str) -> None:
    if find_spec("ziglang") is None:
        pytest.skip("compiling kernels for another family needs the package ziglang")
    code = assembly(model, "--target", target)
    assert len([line for line in code if re.match(addition, line)]) == 1, code


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize("value", [0, -103, 2**31 - 1])
def test_it_wraps(backend: str, value: int) -> None:
    got = glowpy.compile(integers(), backend)({"x": np.array(value, np.int32)})["y"]
    assert got == np.array(value + 103, np.int64).astype(np.int32)
