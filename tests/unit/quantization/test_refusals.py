"""What conversion refuses: profiles of other models, names and options that are none."""

from __future__ import annotations

from dataclasses import replace

import pytest

import glowpy
from glowpy import quantization
from glowpy.core.elemkind import ElemKind
from glowpy.quantization import MinMax, Options
from tests.unit.quantization.test_convert import conv, network, profiled, saved, started


def test_refuses_a_profile_of_another_model() -> None:
    f, x = started()
    other = saved(f, conv(f, "first", x, (4, 8), 3))
    with pytest.raises(glowpy.UserError, match="the profile is not of the model: output 'y'"):
        quantization.quantize(other, profiled())


def test_refuses_a_profile_without_a_value() -> None:
    values = {name: value for name, value in profiled().values.items() if name != "wave"}
    with pytest.raises(glowpy.UserError, match="the profile has no value 'wave'"):
        quantization.quantize(network(), replace(profiled(), values=values))


def test_refuses_floats() -> None:
    options = Options(keep=("third",), assert_all=True)
    with pytest.raises(glowpy.UserError) as raised:
        quantization.quantize(network(), profiled(), options)
    assert "%third stays in floats: 'third' is to be kept" in str(raised.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": ("nothing",)}, "expected a name or a kind of a node to keep, got 'nothing'"),
        ({"calibrations": {"wav": MinMax()}}, "the profile has no value 'wav'"),
        ({"backend": "tpu"}, "expected one of the backends"),
    ],
)
def test_refuses_unknown_names(options: dict[str, object], message: str) -> None:
    with pytest.raises(glowpy.UserError, match=message):
        quantization.quantize(network(), profiled(), Options(**options))  # type: ignore[arg-type]


def test_refuses_kinds() -> None:
    with pytest.raises(glowpy.UserError, match="expected activations of kind u8, i8, i16, got i32"):
        Options(activations=ElemKind.I32)
    with pytest.raises(glowpy.UserError, match="expected biases of kind i8, i16, i32, f32, got u8"):
        Options(bias=ElemKind.U8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schema": "nonsense"}, r"schema: expected .* Schema.ASYMMETRIC, got 'nonsense'"),
        ({"activations": "u8"}, r"activations: expected .* ElemKind.U8, got 'u8'"),
        ({"bias": "i32"}, r"bias: expected .* ElemKind.I32, got 'i32'"),
        ({"calibration": "minmax"}, r"calibration: expected .* MinMax\(\), got 'minmax'"),
        ({"calibrations": [MinMax()]}, "calibrations: expected a dict .*, got list"),
        ({"calibrations": {"x": "minmax"}}, r"calibrations\['x'\]: expected a Calib.*'minmax'"),
        ({"keep": "third"}, "keep: expected a tuple of names, got 'third'"),
        ({"keep": (3,)}, "keep: expected a tuple of names, got a name of type int"),
    ],
)
def test_refuses_options_of_other_types(options: dict[str, object], message: str) -> None:
    with pytest.raises(glowpy.UserError, match=f"Options.{message}"):
        Options(**options)  # type: ignore[arg-type]


def test_refuses_what_is_no_profile() -> None:
    with pytest.raises(glowpy.UserError, match=r"profile: expected a Profile, .* got 'p.yaml'"):
        quantization.quantize(network(), "p.yaml")  # type: ignore[arg-type]
    with pytest.raises(glowpy.UserError, match="options: expected Options, got dict"):
        quantization.quantize(network(), profiled(), {})  # type: ignore[arg-type]
