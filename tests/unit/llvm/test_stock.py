"""The stock: objects that an installation brings are found by the text, for the machine and the kernels they fit."""

from dataclasses import replace
from pathlib import Path

import pytest

from glowpy.llvm import objects
from glowpy.llvm.machine import Machine, host_cpu, host_triple
from glowpy.llvm.objects import compile_objects
from glowpy.llvm.stock import open_stock, write_stock

HOST = Machine(host_triple(), host_cpu(), "")


def test_an_object_is_found_by_its_text_for_a_machine_and_kernels(tmp_path: Path) -> None:
    write_stock(tmp_path, "v", HOST, [b"kernels"], {"one": b"\x01\n\x02", "two": b""})
    stock = open_stock(tmp_path, "v", HOST, [b"kernels"])
    assert [stock.find(text) for text in ("one", "two", "three")] == [b"\x01\n\x02", b"", None]
    for machine, kernels in ((replace(HOST, cpu="other"), b"kernels"), (HOST, b"edited")):
        assert open_stock(tmp_path, "v", machine, [kernels]).find("one") is None
    assert open_stock(tmp_path / "gone", "v", HOST, [b"kernels"]).find("one") is None


@pytest.mark.parametrize("length", [0, 20, -9, -1])
def test_a_damaged_stock_is_an_empty_one(tmp_path: Path, length: int) -> None:
    """Without the end of its objects, or of their places."""
    file = write_stock(tmp_path, "v", HOST, [], {"one": b"1\n345", "two": b"67890"})
    file.write_bytes(file.read_bytes()[:length])
    stock = open_stock(tmp_path, "v", HOST, [])
    assert [stock.find(text) for text in ("one", "two")] == [None, None]


def test_what_is_in_stock_is_not_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_stock(tmp_path, "v", HOST, [], {"b": b"ready"})
    asked = []

    def compile(texts: list[str], *_: object) -> list[bytes]:
        asked.append(texts)
        return [text.encode() for text in texts]

    monkeypatch.setattr(objects, "_compile", compile)
    stock = open_stock(tmp_path, "v", HOST, [])
    made = compile_objects(["a", "b", "c", "b"], HOST, [], use_cache=False, stock=stock)
    assert made == [b"a", b"ready", b"c", b"ready"]
    assert asked == [["a", "c"]]
