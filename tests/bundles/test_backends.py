"""Bundles of any backend that has a compiler for them, whatever class it is of; a clear error for others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar
from unittest.mock import Mock

import pytest

import glowpy
from glowpy import BundleOptions, CpuOptions, Module, UserError
from glowpy.bundling import make
from glowpy.bundling.make import bundle, outdated
from glowpy.bundling.read import read_bundle
from glowpy.llvm.bundle_compiler import BundleCompiler
from glowpy.support.errors import LoadError
from tests.wrapped import Wrapped, installed


def sums() -> Module:
    module = Module()
    x, y = (module.create_placeholder(name, glowpy.parse_type("f32[5]")) for name in "xy")
    f = module.create_function("main")
    f.create_save("save", f.create_add("sum", x, x), y)
    return module


@pytest.fixture
def wrapped() -> Iterator[None]:
    with installed():
        yield


@pytest.mark.usefixtures("wrapped")
def test_a_backend_of_another_kind_makes_bundles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = BundleOptions("net", weights="embedded")
    bundle(sums(), tmp_path / "own", options)
    bundle(sums(), tmp_path / "net", options, Wrapped())
    same = ((tmp_path / folder / "net.ir").read_text() for folder in ("own", "net"))
    assert next(same) == next(same)
    assert read_bundle(tmp_path / "net").backend == "wrapped"
    assert outdated(sums(), tmp_path / "net") == []
    bundle(sums(), tmp_path / "net", options, Wrapped(CpuOptions(exact=True)))
    assert read_bundle(tmp_path / "net").settings["exact"] is True
    assert outdated(sums(), tmp_path / "net") == []
    monkeypatch.setattr(Wrapped, "bundles", False)
    with pytest.raises(LoadError, match="'wrapped' that makes bundles, which this one does not"):
        outdated(sums(), tmp_path / "net")
    monkeypatch.setattr(Wrapped, "options_type", None)
    with pytest.raises(LoadError, match="'wrapped' with the option 'target', which this one does"):
        outdated(sums(), tmp_path / "net")


class Plain(Wrapped):
    """A backend without options."""

    options_type: ClassVar[type | None] = None

    @property
    def bundle_compiler(self) -> BundleCompiler | None:
        compiler = self.inner.bundle_compiler
        assert compiler is not None
        mocked = Mock(wraps=compiler, settings={}, target=compiler.target)
        mocked.bitcode, mocked.identity = compiler.bitcode, compiler.identity
        return mocked


def test_bundles_of_a_backend_without_options_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make, "backend_class", lambda name: Plain)
    bundle(sums(), tmp_path / "net", BundleOptions("net"), Plain())
    assert read_bundle(tmp_path / "net").settings == {}
    assert outdated(sums(), tmp_path / "net") == []


def test_weights_in_little_memory_are_part_of_what_a_bundle_is(tmp_path: Path) -> None:
    manifests = []
    for low_memory in (False, True):
        options = CpuOptions(low_memory=low_memory)
        bundle(sums(), tmp_path / "net", BundleOptions("net"), glowpy.CpuBackend(options))
        assert outdated(sums(), tmp_path / "net") == []
        manifests.append(read_bundle(tmp_path / "net"))
    settings = [manifest.settings for manifest in manifests]
    assert settings[1] == {**settings[0], "low_memory": True}
    assert "low_memory" not in settings[0]
    assert manifests[0].manifest["fingerprint"] != manifests[1].manifest["fingerprint"]


def test_a_backend_without_bundles_is_refused(tmp_path: Path) -> None:
    interpreter = glowpy.InterpreterBackend()
    message = "the interpreter backend makes no bundles"
    with pytest.raises(UserError, match=message):
        bundle(sums(), tmp_path / "net", BundleOptions("net"), interpreter)
    assert not (tmp_path / "net").exists()
