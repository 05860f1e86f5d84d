"""What is measured wins if it is faster, is kept in the cache, and is never more than what was asked for."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from glowpy import CpuBackend, CpuOptions, Module, UserError
from glowpy.backends.cpu.insts_gen import CpuConvInst, CpuDepthwiseConvInst, CpuMatmulInst
from glowpy.backends.cpu.measuring.tuning import Tuner
from glowpy.backends.cpu.passes.pack_products import PackProductsPass
from glowpy.backends.cpu.passes.tune_products import TuneProductsPass
from glowpy.backends.cpu.strategy.explain import explain
from glowpy.backends.cpu.strategy.ways import BY_MODEL, Chooser
from glowpy.backends.cpu.variant import variant_named
from glowpy.backends.interpreter.evaluate import evaluate
from glowpy.cli.files import write_constants
from glowpy.cli.tuning import tuning_of, tuning_text
from glowpy.core.type import parse_type
from glowpy.engine import compilation, compile
from glowpy.graph.node import Constant
from glowpy.graph.printer import print_module
from glowpy.measuring.tuned import Tuned
from glowpy.passes import PassContext
from glowpy.support import cache
from glowpy.support.cache_folder import cache_files, cache_folder
from tests.bundles.networks import glow

VARIANT = variant_named("x86_64_v4")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    assert CpuBackend().kernels.bitcode  # which this process then has, and need not compile again
    monkeypatch.setenv("GLOWPY_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def network(*columns: int) -> Module:
    """Products with so many columns each, one after the other."""
    module = Module()
    f = module.create_function("main")
    generator = np.random.default_rng(5)
    value = module.create_placeholder("x", parse_type("f32[40x64]")).value
    for index, count in enumerate(columns):
        shape = value.type.extents[-1], count
        weights = generator.standard_normal(shape, np.float32) / np.float32(8)
        constant = module.create_constant(f"w{index}", weights)
        value = f.create_mat_mul(f"product{index}", value, constant).result
    f.create_save("save", value, module.create_placeholder("y", value.type))
    return module


@dataclass
class Laboratory:
    """A clock that goes on while networks are compiled and run, as long as it is said of each kind of tile."""

    fast: tuple[int, int] = (0, 0)
    compiling: float = 0.5
    now: float = 0.0
    compiled: list[tuple[int, int]] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    def trial(
        self, network: Module, chooser: Chooser, ctx: PassContext, between: int
    ) -> Callable[[], float]:
        assert between > 0
        main = network.clone().main
        PackProductsPass(VARIANT, exact=True, chooser=chooser).run(main, ctx)
        (product,) = (n for n in main.nodes if n.SCHEMA.mnemonic == "cpu_matmul")
        tile = product.attrs["tile_pixels"], product.attrs["tile_vectors"]
        self.compiled.append(tile)
        self.now += self.compiling

        def run() -> float:
            seconds = 0.001 if tile == self.fast else 0.002
            self.now += seconds
            return seconds

        return run


def tiles(laboratory: Laboratory, seconds: float, *columns: int) -> list[tuple[object, object]]:
    """How a tuner that works in a laboratory has products tiled."""
    tuner = Tuner(seconds, ["here"], laboratory.clock)
    packing = PackProductsPass(VARIANT, exact=True, chooser=tuner)
    main = network(*columns).main
    context = PassContext(evaluate)
    assert not TuneProductsPass(packing, tuner, laboratory.trial).run(main, context)
    packing.run(main, context)
    packed = [n for n in main.nodes if n.SCHEMA.mnemonic == "cpu_matmul"]
    return [(n.attrs["tile_pixels"], n.attrs["tile_vectors"]) for n in packed]


def by_model(*columns: int) -> list[tuple[object, object]]:
    return tiles(Laboratory(), 0, *columns)


def other_tile(*columns: int) -> tuple[int, int]:
    """A tile that the model does not take."""
    laboratory = Laboratory()
    tiles(laboratory, 100, *columns)
    cache_files_gone()
    return next(tile for tile in laboratory.compiled if tile != laboratory.compiled[0])


def cache_files_gone() -> None:
    folder = cache_folder()
    assert folder is not None
    for file in cache_files(folder):
        file.path.unlink()


def test_the_fastest_is_taken_and_kept() -> None:
    fast = other_tile(96)
    assert by_model(96) != [fast]
    laboratory = Laboratory(fast)
    assert tiles(laboratory, 100, 96) == [fast]
    assert len(laboratory.compiled) > 2
    again = Laboratory(fast)
    assert tiles(again, 100, 96) == [fast]
    assert tiles(again, 0, 96) == [fast]
    assert again.compiled == []


def test_what_is_about_as_fast_as_the_models_way_does_not_win() -> None:
    laboratory = Laboratory()
    assert tiles(laboratory, 100, 96) == by_model(96)
    again = Laboratory()
    tiles(again, 100, 96)
    assert again.compiled == []  # that, too, is known then


@pytest.mark.parametrize(
    "payload", [b"", b"nonsense", b"[]", b'{"seconds": [1], "taken": 0}', b'{"taken": 1}']
)
def test_an_entry_about_something_else_is_ignored(folder: Path, payload: bytes) -> None:
    fast = other_tile(96)
    tiles(Laboratory(fast), 100, 96)
    (name,) = (file.path.name for file in cache_files(folder) if file.kind == "tuning")
    cache.write(cache.Key("tuning", name.partition("-")[2]), payload)
    assert tiles(Laboratory(), 0, 96) == by_model(96)
    assert tiles(Laboratory(fast), 100, 96) == [fast]


def test_a_damaged_entry_is_measured_again(folder: Path) -> None:
    fast = other_tile(96)
    tiles(Laboratory(fast), 100, 96)
    (path,) = (file.path for file in cache_files(folder) if file.kind == "tuning")
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    laboratory = Laboratory(fast)
    assert tiles(laboratory, 100, 96) == [fast]
    assert laboratory.compiled


def test_time_is_kept_to_and_goes_to_what_takes_longest() -> None:
    columns = 96, 800, 64
    laboratory = Laboratory(compiling=2.0)
    tiles(laboratory, 5.0, *columns)
    assert laboratory.now <= 5.0 + laboratory.compiling
    first = Laboratory()
    tiles(first, 100, *columns)
    assert set(laboratory.compiled) <= set(first.compiled)
    nothing = Laboratory()
    tiles(nothing, 0.1, *columns)
    assert nothing.compiled == []


def test_time_may_end_before_the_first_way_is_compiled() -> None:
    laboratory = Laboratory()
    tuner = Tuner(2.0, ["here"], map(float, itertools.count()).__next__)
    packing = PackProductsPass(VARIANT, exact=True, chooser=tuner)
    TuneProductsPass(packing, tuner, laboratory.trial).run(network(96).main, PassContext(evaluate))
    assert not laboratory.compiled
    assert not tuner.results


@pytest.mark.parametrize(("share", "busy"), [(1.0, 1.0), (0.5, 0.5), (2.0, 1.0)])
def test_other_work_on_the_processor_is_noticed(share: float, busy: float) -> None:
    laboratory = Laboratory()
    tuner = Tuner(100, ["here"], laboratory.clock, lambda: share * laboratory.now)
    tuning = TuneProductsPass(PackProductsPass(VARIANT, exact=True), tuner, laboratory.trial)
    tuning.run(network(96).main, PassContext(evaluate))
    assert tuner.busy == pytest.approx(busy)
    tuning.run(network(96).main, PassContext(evaluate))
    assert tuner.busy == pytest.approx(busy)  # nothing was left to measure


def test_a_verb_warns_of_other_work(capsys: pytest.CaptureFixture[str]) -> None:
    backend = CpuBackend(CpuOptions(tune=0))
    assert tuning_of(backend) == []
    assert not capsys.readouterr().err
    assert isinstance(backend.compiler.chooser, Tuner)
    backend.compiler.chooser._elapsed, backend.compiler.chooser._used = 4.0, 3.0
    tuning_of(backend)
    assert "warning: other processes had the processor for 25% of" in capsys.readouterr().err


def test_another_machine_has_entries_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    first = CpuBackend(CpuOptions(tune=0)).compiler.chooser
    monkeypatch.setattr("glowpy.backends.cpu.compiler.processor_name", lambda: "another")
    second = CpuBackend(CpuOptions(tune=0)).compiler.chooser
    assert isinstance(first, Tuner)
    assert isinstance(second, Tuner)
    assert first.identity != second.identity


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_seconds_are_a_number(seconds: float) -> None:
    with pytest.raises(UserError, match="expected at least 0 seconds"):
        CpuBackend(CpuOptions(tune=seconds))


def test_another_machines_code_is_not_measured_here() -> None:
    with pytest.raises(UserError, match="cannot measure code for 'cortex-m7' here") as caught:
        CpuBackend(CpuOptions(target="cortex-m7", tune=1))
    assert "leave out --tune" in str(caught.value.diagnostics[0].note)


def mixed() -> Module:
    """A convolution, one of each channel, and a product."""
    module = Module()
    generator = np.random.default_rng(3)
    f = module.create_function("main")

    def weights(name: str, *shape: int) -> Constant:
        return module.create_constant(name, generator.standard_normal(shape, np.float32))

    x = module.create_placeholder("x", parse_type("f32[1x12x12x32]"))
    lists = (3, 3), (1, 1), (1,) * 4, (1, 1)
    conv = f.create_convolution("conv", x, weights("w", 32, 3, 3, 32), weights("b", 32), *lists, 1)
    deep = f.create_convolution(
        "deep", conv, weights("v", 32, 3, 3, 1), weights("c", 32), *lists, 32
    )
    rows = f.create_reshape("rows", parse_type("f32[144x32]"), deep)
    product = f.create_mat_mul("product", rows, weights("p", 32, 40))
    f.create_save("save", product, module.create_placeholder("y", product.result.type))
    return module


class Contrary(Chooser):
    """Takes the last of some ways."""

    def choose(self, n, ways):  # type: ignore[no-untyped-def]
        del n
        return list(ways)[-1]


def test_every_way_computes_the_same() -> None:
    """That is all of each product's; and all of it has the same bits for any number of threads."""
    x = np.random.default_rng(1).standard_normal((1, 12, 12, 32), np.float32)
    expected = compile(mixed(), CpuBackend())({"x": x})["y"]
    results = []
    for threads in (1, 2, 3):
        backend = CpuBackend(CpuOptions(threads=threads))
        backend.compiler.chooser = Contrary()
        results.append(compile(mixed(), backend)({"x": x})["y"])
        backend.close()
    np.testing.assert_allclose(results[0], expected, atol=1e-3 * np.abs(expected).max())
    assert all(result.tobytes() == results[0].tobytes() for result in results)


@pytest.fixture
def second_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that makes the second way of each product the fastest."""
    turns = {"runs": 0}

    def timed(compiled: object, between: int) -> Callable[[], float]:
        assert between > 0
        turns["runs"] += 1
        seconds = 0.001 * (turns["runs"] % 2 + 1)
        return lambda: seconds

    monkeypatch.setattr("glowpy.backends.cpu.compiler.timed_runs", timed)
    monkeypatch.setattr("glowpy.backends.cpu.measuring.tuning._MOST_WAYS", 2)


@pytest.mark.usefixtures("second_wins")
def test_real_products_are_measured_and_explained() -> None:
    backend = CpuBackend(CpuOptions(tune=1000))
    stages = compilation(mixed(), backend)
    kinds = {type(inst) for inst in stages.ir.instructions}
    assert kinds & {CpuConvInst, CpuDepthwiseConvInst, CpuMatmulInst}
    assert backend.tuning is not None
    tuned = backend.tuning.results
    assert {one.name for one in tuned} == {"conv", "deep", "product"}
    assert all(one.taken == 1 and one.gain == pytest.approx(0.5) for one in tuned)
    assert stages.text("strategy").count("(tuned)") == 3
    model = CpuBackend()
    assert model.tuning is None
    assert model.compiler.chooser is BY_MODEL
    assert "(tuned)" not in compilation(mixed(), model).text("strategy")


@pytest.mark.usefixtures("second_wins")
def test_products_that_are_alike_have_the_same_explanation() -> None:
    """They are measured once, under the name of the first."""
    module, rng = Module(), np.random.default_rng(0)
    x = module.create_placeholder("x", parse_type("f32[1x12x12x32]")).value
    f = module.create_function("main")
    for name in ("first", "second"):
        filter = module.create_constant("w", rng.standard_normal((32, 3, 3, 32), np.float32))
        bias = module.create_constant("b", np.zeros(32, np.float32))
        lists = (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1
        x = f.create_convolution(name, x, filter, bias, *lists).result
    f.create_save("save", x, module.create_placeholder("y", x.type))
    backend = CpuBackend(CpuOptions(tune=1000))
    text = compilation(module, backend).text("strategy")
    assert backend.tuning is not None
    assert [one.name for one in backend.tuning.results] == ["first"]
    assert text.count("not by Winograd: measured to be slower, or not exact enough") == 2


@pytest.mark.usefixtures("second_wins")
def test_nothing_is_kept_without_a_cache(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GLOWPY_CACHE_DIR", "off")
    backend = CpuBackend(CpuOptions(tune=1000))
    compilation(mixed(), backend).compiled  # noqa: B018
    assert len(tuning_of(backend) or ()) == 3
    assert (
        "GLOWPY_CACHE_DIR is 'off'; what --tune has measured is not kept" in capsys.readouterr().err
    )


def test_what_was_not_tried_was_not_measured_to_be_slower() -> None:
    """An algorithm that the model finds far slower is none of the ways."""
    module, rng = Module(), np.random.default_rng(0)
    x = module.create_placeholder("x", parse_type("f32[16x64]")).value
    f = module.create_function("main")
    weights = module.create_constant("w", rng.standard_normal((64, 32), np.float32))
    product = f.create_mat_mul("product", x, weights)
    f.create_save("save", product, module.create_placeholder("y", product.result.type))
    backend = CpuBackend(CpuOptions("x86_64-linux-gnu", "x86-64-v3"))
    program = compilation(module, backend).program
    machine_for = backend.target.variant.machine_for
    (one,) = explain(program, machine_for, measured=["product"])
    (same,) = explain(program, machine_for)
    assert one.declined == same.declined
    assert "more than" in one.declined["Strassen"]


@pytest.mark.usefixtures("second_wins")
def test_verbs_say_what_they_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = mixed()
    Path("net.glow").write_text(print_module(module))
    write_constants(Path("net.npz"), module.constants)
    model = "net.glow", "--constants", "net.npz"
    status, text, _ = glow("run", *model, "--tune", "1000", "--json")
    figures = json.loads(text)
    assert status == 0
    assert not figures["recalled"]
    assert [one["kept"] for one in figures["tuning"]] == [False] * 3
    assert [one["gain"] for one in figures["tuning"]] == [0.5] * 3
    tried = figures["tuning"][0]["tried"]
    assert [one["seconds"] for one in tried] == [0.002, 0.001]
    status, text, _ = glow("run", *model, "--tune", "0")
    assert "3 products are known, 0 measured now; 3 are computed in another way, up to 50%" in text
    status, text, errors = glow("dump", *model, "--stage", "strategy", "--tune", "0")
    assert (status, text.count("(tuned)")) == (0, 3)
    assert "3 products are known, 0 measured now" in errors
    assert "(tuned)" not in glow("dump", *model, "--stage", "strategy")[1]
    assert "nothing is known of any product; --tune with more seconds" in tuning_text(())
    same = Tuned("a", "p", ("x", "y"), (1.0, 2.0), taken=0, kept=True)
    assert "1 product is known, 0 measured now; all are computed as without" in tuning_text([same])
    status, text, _ = glow("bundle", *model, "-o", "built", "--tune", "0", "--json")
    assert status == 0
    assert all(one["kept"] and one["taken"] for one in json.loads(text)["tuning"])
    assert glow("bundle", *model, "--check", "built")[0] == 0
    status, _, errors = glow("bundle", *model, "-o", "other", "--target", "rpi4", "--tune", "1")
    assert status != 0
    assert "cannot measure code for" in errors
    assert "tuning" not in json.loads(glow("run", *model, "--json")[1])
    kinds = json.loads(glow("cache", "show", "--json")[1])["kinds"]
    assert kinds["tuning"]["entries"] == 3
