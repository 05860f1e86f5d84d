"""Profiles: what they count, that they can be joined, and what they refuse."""

from __future__ import annotations

import math
import random
import tracemalloc
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from onnxruntime.quantization import CalibrationDataReader

import glowpy
from glowpy import quantization
from glowpy.core.histogram import Histogram
from glowpy.core.tensor import Array
from glowpy.graph.nodes_gen import ReluNode
from glowpy.quantization import Profile, Profiler, Statistics
from glowpy.quantization.profiling import Inputs
from glowpy.quantization.signature import Signature
from tests.unit.quantization.networks import network, samples

EIGHT = samples(8)


@pytest.fixture(scope="module")
def whole() -> Profile:
    return quantization.profile(network(), EIGHT)


def expected(arrays: list[Array]) -> Statistics:
    """What is to be known of a value with these elements in the runs."""
    everything = np.concatenate([array.ravel() for array in arrays])
    lows, highs = ([Fraction(float(end(a))) for a in arrays] for end in (np.min, np.max))
    return Statistics(
        float(everything.min()),
        float(everything.max()),
        Histogram.of(everything),
        nans=0,
        infinities=0,
        runs=len(arrays),
        sum_of_lows=sum(lows, Fraction()),
        sum_of_highs=sum(highs, Fraction()),
    )


def check_same(got: Statistics, right: Statistics) -> None:
    assert np.array_equal(got.histogram.counts, right.histogram.counts)
    assert replace(got, histogram=right.histogram) == right
    assert (got.histogram.exponent, got.histogram.first) == (
        right.histogram.exponent,
        right.histogram.first,
    )


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_counts_every_value(backend: str) -> None:
    profile = quantization.profile(network(), EIGHT, backend=backend)
    inputs = [sample["an input"] for sample in EIGHT]
    check_same(profile["an_input"], expected(inputs))
    check_same(profile["scaled"], expected([2 * x for x in inputs]))
    check_same(profile["relu"], expected([np.maximum(2 * x, 0) for x in inputs]))
    assert len(profile.samples) == 8


def test_names_the_values_of_the_optimized_graph_and_those_it_is_lowered_to(
    whole: Profile,
) -> None:
    """The addition of zero is gone; gelu is there although it is lowered, and its steps are said to be that."""
    graph = {name for name, value in whole.values.items() if not value.part_of}
    assert graph == {"an_input", "scaled", "gelu", "relu"}
    steps = {name for name, value in whole.values.items() if value.part_of == "gelu"}
    assert len(steps) >= 3
    f = quantization.optimized(network())
    assert {node.name for node in f.nodes if node.results} == graph - {"an_input"}


def test_a_profile_is_the_same_on_every_backend() -> None:
    """But for rounding, of which this network has none that differs before its steps."""
    cpu, interpreter = (
        quantization.profile(network(), EIGHT, backend=backend)
        for backend in ("cpu", "interpreter")
    )
    assert cpu.signature == interpreter.signature
    assert list(cpu.values) == list(interpreter.values)
    for name in ("an_input", "scaled", "relu"):
        check_same(cpu[name], interpreter[name])


# -------------------------------------------------------------------------------------- merge and resume


def test_halves_merged_are_the_whole(whole: Profile, tmp_path: Path) -> None:
    for part, inputs in (("a", EIGHT[:3]), ("b", EIGHT[3:])):
        quantization.profile(network(), inputs).save(tmp_path / part)
    a, b = (Profile.load(tmp_path / part) for part in "ab")
    assert a.merge(b).text() == b.merge(a).text() == whole.text()


def test_order_does_not_matter(whole: Profile) -> None:
    shuffled = EIGHT[:]
    random.Random(0).shuffle(shuffled)
    assert quantization.profile(network(), shuffled).text() == whole.text()


def test_resumed_is_the_whole(whole: Profile) -> None:
    start = quantization.profile(network(), EIGHT[:5])
    profiler = Profiler(network(), start)
    assert [profiler.add(sample) for sample in EIGHT[3:]] == [False] * 2 + [True] * 3
    assert profiler.profile.text() == whole.text()
    assert profiler.runs == 3


def test_an_input_counts_once() -> None:
    once, twice = (quantization.profile(network(), EIGHT[:1] * count) for count in (1, 2))
    assert once.text() == twice.text()
    other = {"an input": EIGHT[0]["an input"].T.copy().reshape(2, 3)}
    assert len(quantization.profile(network(), [EIGHT[0], other]).samples) == 2


def test_a_part_merged_with_the_whole_is_the_whole(whole: Profile) -> None:
    part = quantization.profile(network(), EIGHT[2:4])
    assert whole.merge(part).text() == part.merge(whole).text() == whole.text()


def test_overlapping_profiles_are_refused() -> None:
    a, b = (quantization.profile(network(), part) for part in (EIGHT[:5], EIGHT[3:]))
    with pytest.raises(glowpy.UserError, match=r"different inputs, got 2 inputs that are in both"):
        a.merge(b)


ARRAYS = st.lists(
    st.lists(st.floats(width=32) | st.sampled_from([0.0, math.inf, math.nan]), max_size=6),
    min_size=1,
    max_size=5,
)


@given(ARRAYS, st.randoms(use_true_random=False))
def test_statistics_are_joined_in_any_order(runs: list[list[float]], rng: random.Random) -> None:
    parts = [Statistics.of(np.array(run, np.float32)) for run in runs]
    first = reduce(Statistics.merged, parts, Statistics.none())
    rng.shuffle(parts)
    check_same(reduce(Statistics.merged, parts), first)
    finite = [x for run in runs for x in run if math.isfinite(x)]
    assert first.count == len(finite)
    assert first.nans + first.infinities == sum(map(len, runs)) - len(finite)
    assert first.low == min(finite, default=math.inf)


# ------------------------------------------------------------------------------------------------ inputs


class Reader(CalibrationDataReader):  # type: ignore[misc, no-any-unimported]
    """Of an unknown length: that of onnxruntime's raises NotImplementedError."""

    def __init__(self, inputs: list[dict[str, Array]]) -> None:
        self._rest = iter(inputs)

    def get_next(self) -> Mapping[str, Array] | None:
        return next(self._rest, None)


def test_takes_readers_and_generators(whole: Profile) -> None:
    def generate() -> Iterator[dict[str, Array]]:
        yield from EIGHT

    for inputs in (Reader(EIGHT), generate(), tuple(EIGHT)):
        assert quantization.profile(network(), inputs).text() == whole.text()


def test_reports_how_far_it_is() -> None:
    reports = []
    with glowpy.reporting(lambda *progress: reports.append(progress)):
        quantization.profile(network(), EIGHT[:3])
    assert [r for r in reports if r[0] == "inputs"] == [("inputs", index, 3) for index in range(3)]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "expected at least one input to profile with, got none"),
        (Reader([]), "expected at least one input to profile with, got none"),
        ([{}], r"input 0: missing input 'an input' \(f32\[2x3\]\)"),
        (
            [*EIGHT, {"y": EIGHT[0]["an input"]}],
            r"input 8: expected the inputs 'an input', got 'y'",
        ),
        (
            [{"an input": np.zeros((3, 2), np.float32)}],
            r"input 0: .*expected an array of type f32\[2x3\], got float32\[3x2\]",
        ),
        (
            [{"an input": np.zeros((2, 3))}],
            r"input 0: .*expected an array of type f32\[2x3\], got float64",
        ),
        ([3], "input 0: expected a dict of inputs, got int"),
        (EIGHT[0], "expected an iterable of dicts, .* got one dict"),
        (5, "expected an iterable of dicts, .* got int"),
        ("inputs.npz", "expected an iterable of dicts, .* got str"),
    ],
)
def test_refuses_inputs(inputs: Inputs, message: str) -> None:
    with pytest.raises(glowpy.UserError, match=message):
        quantization.profile(network(), inputs)


def test_refuses_a_path() -> None:
    with pytest.raises(glowpy.UserError, match=r"model: expected a Module .* got 'net.onnx'"):
        quantization.profile("net.onnx", EIGHT)  # type: ignore[arg-type]


def test_nans_and_infinities_are_counted_apart() -> None:
    x = np.array([[1, math.nan, -math.inf], [math.inf, math.nan, -2]], np.float32)
    known = quantization.profile(network(), [{"an input": x}])["an_input"]
    assert (known.low, known.high, known.nans, known.infinities) == (-2, 1, 2, 2)
    assert known.count == 2


def test_an_input_that_only_the_optimizer_leaves_unread_is_given_all_the_same() -> None:
    module = glowpy.Module()
    f = module.create_function("main")
    x, y = (module.create_placeholder(name, glowpy.parse_type("f32[2]")) for name in "xy")
    state = module.create_placeholder("state", glowpy.parse_type("i32[2]"))
    zero = module.create_constant("zero", np.zeros(2, np.int32))
    f.create_save("save", f.create_neg("n", x), y)
    f.create_save("keep", f.create_mul("nothing", state, zero), state)
    sample = {"x": np.ones(2, np.float32), "state": np.ones(2, np.int32)}
    profile = quantization.profile(module, [sample])
    assert profile["n"].low == -1
    with pytest.raises(glowpy.UserError, match="got 'other'"):
        quantization.profile(module, [{**sample, "other": sample["x"]}])


def test_a_network_without_floats_is_refused() -> None:
    module = glowpy.Module()
    f = module.create_function("main")
    x, y = (module.create_placeholder(name, glowpy.parse_type("i32[2]")) for name in "xy")
    f.create_save("save", f.create_neg("n", x), y)
    with pytest.raises(glowpy.UserError, match="nothing with floating-point numbers"):
        quantization.profile(module, [{"x": np.zeros(2, np.int32)}])


def test_halves_are_counted_as_f32() -> None:
    module = glowpy.Module()
    f = module.create_function("main")
    x, y = (module.create_placeholder(name, glowpy.parse_type("f16[3]")) for name in "xy")
    f.create_save("save", f.create_neg("n", x), y)
    inputs = np.array([1, 2, -0.5], np.float16)
    profile = quantization.profile(module, [{"x": inputs}])
    check_same(profile["n"], Statistics.of(-inputs))
    assert profile.values["n"].type == "f16[3]"


# ------------------------------------------------------------------------------------------------ growth


def test_says_which_ranges_still_grow() -> None:
    profiler = Profiler(network())
    steady = [{"an input": np.full((2, 3), 1 + i / 1000, np.float32)} for i in range(19)]
    for sample in steady:
        profiler.add(sample)
    assert profiler.growing == []
    profiler.add({"an input": np.full((2, 3), 1.5, np.float32)})
    for count in (21, 22):  # of which it is among the last tenth
        assert {"an_input", "scaled", "relu"} <= set(profiler.growing)
        profiler.add({"an input": np.full((2, 3), count / 20, np.float32)})
    assert {"an_input", "scaled", "relu"} <= set(profiler.growing)
    profiler.add({"an input": np.full((2, 3), 23 / 20, np.float32)})
    assert profiler.growing == []


# -------------------------------------------------------------------------------------------------- file


def test_file_is_read_back(whole: Profile, tmp_path: Path) -> None:
    whole.save(tmp_path / "p.yaml")
    again = Profile.load(tmp_path / "p.yaml")
    assert again.text() == whole.text()
    for name, value in whole.values.items():
        check_same(again[name], value.statistics)
        assert again.values[name].origin == value.origin
    plain = yaml.safe_load((tmp_path / "p.yaml").read_text())
    assert plain["model"]["inputs"] == {"an input": "f32[2x3]"}
    assert plain["values"][0]["origin"] == "input 'an input'"


@settings(deadline=None, max_examples=25)
@given(numbers=st.lists(st.floats(width=32), min_size=1, max_size=4))
def test_numbers_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[float]
) -> None:
    statistics = Statistics.of(np.array(numbers, np.float32))
    value = quantization.ProfiledValue("v", "f32[1]", "", "", statistics)
    profile = Profile(Signature("", "f", {}, {}, {}), frozenset(["0"]), {"v": value})
    path = tmp_path_factory.getbasetemp() / "numbers.yaml"
    profile.save(path)
    check_same(Profile.load(path)["v"], statistics)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "glowpy profile 1",
            "glowpy profile 7",
            "expected a file of the format 'glowpy profile 1'",
        ),
        ("model:", "model: [", "not a YAML file: "),
        ("min: ", "lowest: ", "not a whole profile: no 'min'"),
        ("count: 48", "count: 47", r"not a whole profile: 'an_input': expected 2048 counts"),
        ("exponent: -", "exponent: 9", r"not a whole profile: 'an_input': bins of 2\*\*9"),
        ("min: -", "min: -.inf #", "not a whole profile: 'an_input': a range from -inf to"),
        ("min: -", "min: 99", "not a whole profile: 'an_input': a range from 99"),
        ("runs: 8", "runs: eight", "not a whole profile: "),
        ("runs: 8", "runs: -8", "not a whole profile: 'an_input': 0 NaNs and 0 infinities in -8"),
        ("runs: 8", "runs: 0", "not a whole profile: 'an_input': 0 NaNs and 0 infinities in 0"),
        ("runs: 8", "runs: 9", "not a whole profile: 'an_input': of 9 runs, and 8 samples"),
        ("nans: 0", "nans: -1", "not a whole profile: 'an_input': -1 NaNs"),
        ("sum_of_lows: ", "sum_of_lows: 900 #", "'an_input': sums of extremes that are beyond"),
        ("sum_of_lows: ", "sum_of_lows: 1e999999999 #", "expected an exact sum, got '1e999999999'"),
        ("sum_of_lows: ", "sum_of_lows: 1/0 #", "expected an exact sum, got '1/0'"),
        ("- name: an_input", "- name: relu", "'relu': it is there twice"),
        ("samples:", "samples: 5\nothers:", "not a whole profile: "),
        ("values:", "values: {a: 1}\nothers:", "not a whole profile: "),
        ("min: ", "min: !!python/name:os.system #", "not a YAML file: could not determine"),
    ],
)
def test_damaged_files_are_refused(
    whole: Profile, tmp_path: Path, old: str, new: str, message: str
) -> None:
    text = whole.text()
    assert old in text
    (tmp_path / "p.yaml").write_text(text.replace(old, new, 1))
    with pytest.raises(glowpy.LoadError, match=message):
        Profile.load(tmp_path / "p.yaml")


BOMB = b"a: &a [x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (i + 1, i + 1, b"*%c," % i * 9) for i in range(97, 121)
)


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe\x00", b"[1, 2]", b"{}", b"[" * 5000, b"[" * 200_000, BOMB],
    ids=range(7),
)  # fmt: skip
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "p.yaml").write_bytes(content)
    with pytest.raises(glowpy.LoadError, match=r"p\.yaml"):
        Profile.load(tmp_path / "p.yaml")
    with pytest.raises(glowpy.LoadError, match="cannot read the file"):
        Profile.load(tmp_path / "none.yaml")


# ---------------------------------------------------------------------------------------- another model


def test_a_profile_of_other_weights_is_refused(whole: Profile) -> None:
    whole.check(quantization.optimized(network()))
    with pytest.raises(
        glowpy.UserError, match=r"not of the model: the elements of 'w.*' are others"
    ):
        whole.check(quantization.optimized(network(weight=3.0)))


def test_a_profile_of_another_model_says_what_differs(whole: Profile) -> None:
    module = network()
    f = module.main
    extra = module.create_placeholder("extra", glowpy.parse_type("f32[1x3]"))
    f.saves[0].set_input(0, f.create_add("sum", f.saves[0].input, extra).result)
    with pytest.raises(glowpy.UserError) as caught:
        Profiler(module, start=whole)
    message = str(caught.value)
    assert "input 'extra': expected none, got f32[1x3]" in message
    assert "number of nodes 'add': expected none, got 1" in message
    other = quantization.profile(module, [{**EIGHT[0], "extra": np.zeros((1, 3), np.float32)}])
    with pytest.raises(glowpy.UserError, match="not of the same model as the other: input 'extra'"):
        whole.merge(other)


def test_an_unknown_value_is_an_error(whole: Profile) -> None:
    with pytest.raises(glowpy.UserError, match="the profile has no value 'nothing'"):
        whole["nothing"]


def test_says_what_it_is(whole: Profile) -> None:
    assert repr(whole).startswith("<Profile of main: ")
    assert repr(whole).endswith(" values over 8 inputs>")
    assert "an_input" in whole._repr_html_()


# ------------------------------------------------------------------------------------------- partly done


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_what_is_quantized_already_stays_so(backend: str) -> None:
    """Its floats are counted, as they are after rounding to integers."""
    module = glowpy.Module()
    f = module.create_function("main")
    type = glowpy.parse_type("f32[4]")
    stored = glowpy.parse_type("i8[4](s=0.5,o=3)")
    x, y = (module.create_placeholder(name, type) for name in "xy")
    q = f.create_quantize("q", stored, x)
    relu = f.create(ReluNode, "relu", [q], {}, stored)
    f.create_save("save", f.create_dequantize("d", type, relu), y)
    inputs = np.array([-2, 0.3, 1.24, 100], np.float32)
    profile = quantization.profile(module, [{"x": inputs}], backend=backend)
    assert set(profile.values) == {"x", "d"}
    check_same(profile["d"], Statistics.of(np.array([0, 0.5, 1, 62], np.float32)))


def test_an_interrupted_input_has_not_been(whole: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even in part: what Ctrl-C leaves is written to the file."""
    profiler = Profiler(network())
    for sample in EIGHT[:2]:
        profiler.add(sample)
    before = profiler.profile.text()
    steps = iter(range(3))
    merged = Statistics.merged

    def interrupted(self: Statistics, other: Statistics) -> Statistics:
        if next(steps, None) is None:
            raise KeyboardInterrupt
        return merged(self, other)

    with monkeypatch.context() as patch:
        patch.setattr(Statistics, "merged", interrupted)
        with pytest.raises(KeyboardInterrupt):
            profiler.add(EIGHT[2])
    assert profiler.profile.text() == before
    assert profiler.runs == 2
    assert [profiler.add(sample) for sample in EIGHT] == [False] * 2 + [True] * 6
    assert profiler.profile.text() == whole.text()


def test_memory_does_not_grow_with_the_inputs() -> None:
    profiler = Profiler(network())
    for sample in samples(20):
        profiler.add(sample)
    more = samples(200, seed=1)
    tracemalloc.start()
    try:
        for sample in more[:100]:
            profiler.add(sample)
        before, _ = tracemalloc.get_traced_memory()
        for sample in more[100:]:
            profiler.add(sample)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 100 * 1024  # digests of the inputs; one histogram takes 16 KiB
