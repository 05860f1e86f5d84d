"""What compiled networks come to, beside the committed table: what was won stays won."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from glowpy import UserError
from glowpy.llvm.machine import LLVM_VERSION
from glowpy.opt.pipelines import IR_DEFAULT
from tests.alone import run_alone
from tools.figures.measure import Figures, figures_of
from tools.figures.rows import ROWS
from tools.figures.skeleton import filled, save_skeleton
from tools.figures.table import Entry, Table, differences, renewed, unexplained

_LARGE = ("vgg19", "bvlc_alexnet", "zfnet512")
"""Networks whose weights are to leave the memory of the tests at once."""


def test_the_table_has_every_row_and_no_other() -> None:
    assert list(Table.read().rows) == list(ROWS)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ROWS)
def test_figures(name: str) -> None:
    table = Table.read()
    new = run_alone(_figures, name) if name in _LARGE else _figures(name)
    lines = list(differences(table.rows[name].figures, new, same_llvm=table.llvm == LLVM_VERSION))
    if lines:
        command = f"python -m tools.figures --renew '{name}' writes them"
        pytest.fail("\n".join([f"figures of {name}:", *lines, command]), pytrace=False)


def _figures(name: str) -> Figures:
    return figures_of(ROWS[name])


@pytest.mark.parametrize("name", ROWS)
def test_peaks_above_their_bounds_have_reasons(name: str) -> None:
    assert not unexplained(Table.read().rows[name])


OLD: Figures = {"nodes": 4, "peak": 128, "bound": 128, "rewrites": 3, "code": 1000}


def test_differences_name_column_and_change() -> None:
    new = {**OLD, "nodes": 5, "code": 1020}
    assert list(differences(OLD, new)) == [
        "nodes: 4 -> 5 (+25.0 %)",
        "code: 1,000 -> 1,020 (+2.0 %)",
    ]
    assert list(differences(OLD, new, same_llvm=False)) == ["nodes: 4 -> 5 (+25.0 %)"]
    assert not list(differences(OLD, {**OLD, "code": 1009}))


def test_a_column_that_is_gone_differs() -> None:
    assert list(differences(OLD, {k: v for k, v in OLD.items() if k != "nodes"})) == [
        "nodes: 4 -> None"
    ]


def test_what_got_worse_needs_a_reason() -> None:
    worse = {**OLD, "nodes": 5, "rewrites": 9}
    with pytest.raises(UserError, match=r"worse in 'net': nodes 4 -> 5"):
        renewed("net", Entry(OLD), worse, "")
    assert renewed("net", Entry(OLD), worse, "faster").why == {"nodes": "faster"}


def test_what_got_better_needs_none_and_loses_the_old_one() -> None:
    above = Entry({**OLD, "peak": 200}, {"peak": "fragments"})
    assert renewed("net", above, OLD, "").why == {}


def test_a_peak_above_its_bound_needs_a_reason() -> None:
    above = {**OLD, "peak": 200}
    with pytest.raises(UserError, match=r"peak 200 is above its bound 128 \(\+56.2 %\)"):
        renewed("net", None, above, "")
    assert renewed("net", None, above, "fragments").why == {"peak": "fragments"}


def test_a_table_reads_back(tmp_path: Path) -> None:
    table = Table("20.1", {"net": Entry(OLD, {"nodes": "faster"})})
    table.write(tmp_path / "table.yaml")
    assert Table.read(tmp_path / "table.yaml") == table


def test_a_disabled_pass_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tuple(step for step in IR_DEFAULT if step.name != "stack")
    assert len(kept) < len(IR_DEFAULT)
    monkeypatch.setattr("glowpy.recipe.IR_DEFAULT", kept)
    entry = Table.read().rows["cnn on cortex-m7"]
    new = figures_of(ROWS["cnn on cortex-m7"], emulate=False)
    assert list(differences(entry.figures, new))


def test_a_skeleton_keeps_shapes_and_small_tensors(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).standard_normal((40, 30)).astype(np.float32)
    mask = np.triu(np.full((32, 32), -np.inf, np.float32), 1)
    small = np.arange(7, dtype=np.float32)
    tensors = [
        onnx.numpy_helper.from_array(array, name)
        for name, array in (("weights", weights), ("mask", mask), ("small", small))
    ]
    graph = onnx.helper.make_graph([], "g", [], [], tensors)
    path = tmp_path / "m.onnx.gz"
    save_skeleton(onnx.helper.make_model(graph), path)
    assert path.stat().st_size < 1000
    arrays = [onnx.numpy_helper.to_array(tensor) for tensor in filled(path).graph.initializer]
    assert arrays[0].shape == (40, 30)
    assert len(np.unique(arrays[0])) > 1000
    np.testing.assert_array_equal(arrays[1], mask)
    np.testing.assert_array_equal(arrays[2], small)
