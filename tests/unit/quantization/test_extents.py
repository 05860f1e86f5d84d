"""A profile is of a network, whatever extents its inputs have: what values are like does not depend on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
import yaml

import glowpy
from glowpy import quantization
from glowpy.quantization import Profile
from glowpy.quantization.signature import Signature
from glowpy.support.symbolic import Dim, symbol

TEXT = """<ir_version: 8, opset_import: ["": 17]>
g (float[batch, 2, h, h] x) => (float[batch, 3] y)
<float[3, 3] v = {0.1, 0.2, -0.3, 0.4, -0.5, 0.6, 0.7, 0.8, -0.9}>
{
  c = Conv<pads = [1, 1, 1, 1]>(x, w)
  r = LeakyRelu<alpha = 0.1>(c)
  p = GlobalAveragePool(r)
  shape = Constant<value = int64[2] {0, -1}>()
  f = Reshape(p, shape)
  m = MatMul(f, v)
  y = Add(m, m)
}"""


def network(batch: Dim, h: Dim, scale: float = 0.1, text: str = TEXT) -> glowpy.Module:
    model = onnx.parser.parse_model(text)
    weights = (np.arange(54).reshape(3, 2, 3, 3) % 7 - 3).astype(np.float32) * np.float32(scale)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    return glowpy.load(model, dims={"batch": batch, "h": h})


def samples(batch: int, h: int) -> list[Mapping[str, np.ndarray]]:
    rng = np.random.default_rng(3)
    return [{"x": rng.normal(size=(batch, 2, h, h)).astype(np.float32)} for _ in range(4)]


@pytest.fixture(scope="module")
def profile() -> Profile:
    return quantization.profile(network(batch=1, h=4), samples(1, 4), backend="interpreter")


@pytest.mark.parametrize(
    "dims",
    [
        {"batch": 3, "h": 4},
        {"batch": symbol("batch", 1, 64), "h": 4},
        {"batch": symbol("batch", 1, 64), "h": symbol("h", 1, 32)},
        {"batch": 2, "h": 7},
    ],
)
def test_a_profile_serves_other_extents(
    profile: Profile, dims: dict[str, Dim], tmp_path: Path
) -> None:
    profile.save(tmp_path / "p.yaml")
    loaded = Profile.load(tmp_path / "p.yaml")
    module = network(dims["batch"], dims["h"])
    quantized = quantization.quantize(module, loaded)
    assert "i32" in str(quantized.main)
    (sample,) = samples(2 if dims["batch"] == 2 else 3, 7 if dims["h"] == 7 else 4)[:1]
    right = glowpy.compile(network(batch=len(sample["x"]), h=sample["x"].shape[2]), "interpreter")
    got = glowpy.compile(quantized, "interpreter")(sample)["y"]
    expected = right(sample)["y"]
    assert np.abs(got - expected).max() < 0.05 * np.abs(expected).max() + 0.02


def test_the_same_integers_as_with_a_profile_of_these_extents(profile: Profile) -> None:
    quantized = quantization.quantize(network(batch=2, h=4), profile)
    twice = [{"x": np.concatenate([sample["x"]] * 2)} for sample in samples(1, 4)]
    own = quantization.profile(network(batch=2, h=4), twice, backend="interpreter")
    assert str(quantized.main) == str(quantization.quantize(network(batch=2, h=4), own).main)


def test_profiles_of_several_extents_are_merged(profile: Profile) -> None:
    start = quantization.profile(
        network(batch=2, h=4), samples(2, 4), start=profile, backend="interpreter"
    )
    other = quantization.profile(network(batch=2, h=4), samples(2, 4), backend="interpreter")
    merged = profile.merge(other)
    assert len(start.samples) == len(merged.samples) == 8
    for name, value in start.values.items():
        one, same = value.statistics, merged[name]
        assert (one.histogram.counts == same.histogram.counts).all()
        assert replace(one, histogram=same.histogram) == same


def test_other_networks_are_refused(profile: Profile) -> None:
    with pytest.raises(glowpy.UserError, match="the profile is not of the model"):
        quantization.quantize(network(scale=0.2, batch=3, h=4), profile)
    module = network(batch=3, h=4)
    f = module.main
    extra = module.create_placeholder("extra", glowpy.parse_type("f32[3x3]"))
    f.saves[0].set_input(0, f.create_add("more", f.saves[0].input, extra).result)
    with pytest.raises(glowpy.UserError, match="input 'extra': expected none"):
        quantization.quantize(module, profile)


ALPHA = TEXT.replace("alpha = 0.1", "alpha = 0.9")
RENAMED = TEXT.replace("r = Leaky", "other = Leaky").replace("Pool(r)", "Pool(other)")
WIDER = (
    TEXT.replace("v = {", "k = {")
    .replace("float[3, 3]", "float[3, 4]")
    .replace("0.9}", "0.9, 1, 2, 3}")
    .replace("m = MatMul(f, v)", "n = MatMul(f, k)\n  kt = Transpose(k)\n  m = MatMul(n, kt)")
)


@pytest.mark.parametrize(
    ("text", "scale", "batch", "difference"),
    [
        (ALPHA, 0.1, 1, "node 'r': expected leaky_relu {alpha=0.1.*}, got leaky_relu {alpha=0.89"),
        (ALPHA, 0.1, 3, "node 'r': expected leaky_relu {alpha=0.1.*}, got leaky_relu {alpha=0.89"),
        (RENAMED, 0.1, 1, "only weights, attributes or names of nodes differ"),
        (TEXT, 10, 1, "the elements of 'w.*' are others"),
        (TEXT, 10, 3, "the elements of 'w.*' are others"),
        (WIDER, 0.1, 3, "number of nodes 'mat_mul'"),
    ],
)
def test_networks_with_the_same_inputs_and_outputs_are_refused(
    profile: Profile, text: str, scale: float, batch: int, difference: str
) -> None:
    with pytest.raises(glowpy.UserError, match=difference):
        quantization.quantize(network(batch, 4, scale, text), profile)


@pytest.mark.parametrize("missing", [("nodes", "symbols"), ("weights", "nodes", "symbols")])
def test_profiles_of_earlier_versions_serve_one_network(
    profile: Profile, missing: tuple[str, ...], tmp_path: Path
) -> None:
    content = yaml.safe_load(profile.text())
    for key in missing:
        del content["model"][key]
    path = tmp_path / "p.yaml"
    path.write_text(yaml.dump(content, sort_keys=False))
    older = Profile.load(path)
    assert "i32" in str(quantization.quantize(network(batch=1, h=4), older).main)
    for batch, scale in ((1, 10), (3, 0.1), (3, 10)):
        with pytest.raises(glowpy.UserError, match="the profile is not of the model"):
            quantization.quantize(network(batch, 4, scale), older)


def test_other_bounds_are_other_extents(profile: Profile) -> None:
    many, few = (network(symbol("batch", 1, most), 4) for most in (64, 8))
    one, other = (Signature.of(quantization.optimized(module)) for module in (many, few))
    assert one.inputs == other.inputs
    assert not replace(one, digest="").differences(other)


def test_what_other_extents_add_stays_in_floats(profile: Profile) -> None:
    name = "r"
    values = {key: value for key, value in profile.values.items() if key != name}
    result = quantization.convert(network(batch=3, h=4), replace(profile, values=values))
    reasons = " ".join(outcome.reason for outcome in result.floats)
    assert f"%{name} is not in the profile, which is of other extents" in reasons
