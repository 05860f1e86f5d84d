"""The bench tool's arithmetic, and one run of it on a small model."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from glowpy.cli.bench_peers import Contestant
from tools import bench_extents
from tools.bench import Row, interleaved, main, table, time_once

MODEL = """
<ir_version: 8, opset_import: ["": 17]>
g (float[2, 3] x) => (float[2, 3] y) { s = Add(x, x)  y = Softmax(s) }
"""


class FakeClock:
    """Time that passes only inside of runs."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def contestant(self, name: str, seconds: list[float]) -> Contestant:
        """Takes these times in turn."""
        turns = iter(seconds * 1000)

        def run() -> None:
            self.now += next(turns)

        return Contestant(name, run, list)


def test_time_once_is_the_median() -> None:
    clock = FakeClock()
    assert time_once(clock.contestant("a", [1, 9, 2]).run, 0, clock) == 2


def test_interleaved_gives_every_round_of_everybody() -> None:
    clock = FakeClock()
    samples = interleaved(
        [clock.contestant("a", [0.001]), clock.contestant("b", [0.003])], 4, 0, clock
    )
    assert samples.keys() == {"a", "b"}
    assert samples["a"] == pytest.approx([1] * 4)
    assert samples["b"] == pytest.approx([3] * 4)


def test_ratio_is_above_one_where_glowpy_is_faster() -> None:
    row = Row("m", rounds={"glowpy": [2, 1, 90], "onnxruntime": [3, 3, 3]})
    assert row.milliseconds == {"glowpy": 2, "onnxruntime": 3}
    assert row.ratio("onnxruntime") == 1.5
    assert row.ratio("openvino") is None
    assert table([row], ["onnxruntime", "openvino"]).row_count == 1


@pytest.fixture
def keep_affinity() -> Iterator[None]:
    before = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, before)


@pytest.mark.usefixtures("keep_affinity")
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_a_small_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "small.onnx"
    onnx.save(parser.parse_model(MODEL), str(path))
    assert main(["--models", str(path), "--rounds", "2", "--seconds", "0", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    (row,) = report["rows"]
    assert row["model"] == "small"
    assert row["milliseconds"].keys() == {"glowpy", "onnxruntime"}
    assert all(len(rounds) == 2 and np.min(rounds) > 0 for rounds in row["rounds"].values())
    assert max(row["errors"].values()) < 1e-6
    assert report["machine"]["cores"] == str(os.cpu_count())


def test_unknown_names(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--models", "gpt9"])
    assert "no network 'gpt9' in the zoo" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--against", "abacus"])
    assert "unknown runtime abacus" in capsys.readouterr().err


def test_code_for_a_range_is_compared_with_code_for_an_extent(tmp_path: Path) -> None:
    path = str(tmp_path / "net.onnx")
    onnx.save(parser.parse_model(MODEL.replace("[2, 3]", "[n, 3, m]")), path)
    row = bench_extents.measure(path, "n=1..8", 5, ["m=2"], rounds=3, seconds=0.0)
    assert row.extent == 5
    assert min(row.constant, row.symbolic, row.ratio) > 0
