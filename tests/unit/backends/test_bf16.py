"""Products in bf16: those of rounded operands, added up in f32, whatever computes them."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx.numpy_helper
import pytest

import glowpy
from glowpy import BundleOptions, CpuBackend, CpuOptions, Module
from glowpy import onnxruntime as drop_in
from glowpy.backend import Operation
from glowpy.backends.cpu.bf16_products import is_in_bf16
from glowpy.backends.cpu.passes.pack_products import PackProductsPass
from glowpy.backends.cpu.passes.read_rounded import ReadRoundedPass
from glowpy.backends.cpu.strategy.ways import Chooser
from glowpy.backends.interpreter.backend import InterpreterBackend
from glowpy.cli.main import run
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type, parse_type
from glowpy.engine import compilation, evaluate
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Operand
from glowpy.passes import PassContext
from glowpy.support.errors import UserError
from glowpy.support.symbolic import symbol
from tests.bundles.networks import need
from tests.libjit.product_cases import Conv, convolve


class InBf16(Chooser):
    """Takes bf16 wherever it may be taken, however small a product is."""

    def choose(self, n: Node, ways: Iterable[Any]) -> Any:
        """The first way in bf16, if there is one."""
        del n
        listed = list(ways)
        return next(filter(is_in_bf16, listed), listed[0])


def backend(**options: Any) -> CpuBackend:
    """A backend for this processor that takes bf16 wherever it can."""
    try:
        own = CpuBackend(CpuOptions(precision="bf16", **options))
    except UserError:
        pytest.skip("this processor does not multiply numbers in bf16")
    own.compiler.chooser = InBf16()
    return own


def floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape, dtype=np.float32)


def rounded(array: Array) -> Array:
    """What is left of f32 in bf16."""
    with np.errstate(all="ignore"):
        return np.asarray(array.astype(ml_dtypes.bfloat16).astype(np.float64))


Build = Callable[..., Any]


def network(shapes: dict[str, str | Type], constants: dict[str, Array], build: Build) -> Module:
    """A module with one function of placeholders and constants."""
    module = Module()
    f = module.create_function("main")
    values: list[Operand] = [
        module.create_placeholder(name, parse_type(type) if isinstance(type, str) else type)
        for name, type in shapes.items()
    ]
    values += [module.create_constant(name, Tensor.of(a)) for name, a in constants.items()]
    node = build(f, *values)
    f.create_save("save", node, module.create_placeholder("y", node.result.type))
    return module


def kinds(module: Module, own: CpuBackend) -> list[str]:
    """The kinds of what its tiled products read."""
    program = compilation(module, own).program
    return [
        inst.operands[1].value.type.kind.value
        for inst in program.ir.instructions
        if inst.SCHEMA.mnemonic in ("cpu_conv", "cpu_matmul")
    ]


def check(make: Callable[[], Module], inputs: dict[str, Array], expected: Array) -> None:
    """Results are the sums but for the rounding of f32: by instructions, in f32, and on the interpreter."""
    own = backend()
    assert set(kinds(make(), own)) == {"bf16"}
    bound = 1e-5 * max(float(np.abs(expected).max(initial=0)), 1)
    program = compilation(make(), own).program
    plain = InterpreterBackend().function(program)
    for function in (glowpy.compile(make(), own), plain):
        np.testing.assert_allclose(function(inputs)["y"], expected, rtol=1e-5, atol=bound)


PRODUCTS = [
    ((5, 8), (8, 19)),
    ((1, 33), (33, 65)),
    ((2, 3, 7), (7, 16)),
    ((2, 13, 6), (2, 6, 5)),
    ((40, 130), (130, 70)),
]


@pytest.mark.parametrize("computed", [False, True], ids=["constant", "computed"])
@pytest.mark.parametrize(("left", "right"), PRODUCTS, ids=str)
def test_products(left: tuple[int, ...], right: tuple[int, ...], computed: bool) -> None:
    if computed and np.prod(left[:-1]) == np.prod(right[:-2]):
        pytest.skip("a row is multiplied by what is computed where that lies, in f32")
    lhs, rhs = floats(*left), floats(*right, seed=1)
    shapes: dict[str, str | Type] = {"x": f"f32[{'x'.join(map(str, left))}]"}
    if computed:
        shapes["w"] = f"f32[{'x'.join(map(str, right))}]"
    constants = {} if computed else {"w": rhs}
    inputs = {"x": lhs, **({"w": rhs} if computed else {})}
    check(
        lambda: network(shapes, constants, lambda f, x, w: f.create_mat_mul("p", x, w)),
        inputs,
        rounded(lhs) @ rounded(rhs),
    )


CONVS = [
    Conv((6, 7), 3, 5, (3, 3), pads=(1, 1, 1, 1)),
    Conv(
        (7, 8), 46, 38, (3, 2), strides=(2, 1), pads=(2, 0, 1, 3), dilation=(1, 2), group=2, batch=2
    ),
    Conv((6, 7), 8, 33, (1, 1), batch=2),
    Conv((9, 9), 4, 40, (3, 3), strides=(2, 2)),
    Conv((5, 5), 2, 3, (3, 3), pads=(4, 5, 3, 6)),
    Conv((9,), 5, 6, (3,), strides=(2,), pads=(1, 2)),
    Conv((4, 5, 6), 4, 6, (3, 2, 3), strides=(2, 1, 1), pads=(1, 0, 0, 1, 1, 1)),
]


def convolution(conv: Conv, f: Function, x: Operand, w: Operand, b: Operand) -> Any:
    rank = len(conv.image)
    ones, none = (1,) * rank, (0,) * (2 * rank)
    return f.create_convolution(
        "conv", x, w, b, conv.kernels, conv.strides or ones, conv.pads or none, conv.dilation or ones, conv.group
    )  # fmt: skip


@pytest.mark.parametrize("conv", CONVS, ids=str)
def test_convolutions(conv: Conv) -> None:
    x = floats(conv.batch, *conv.image, conv.channels)
    filter = floats(conv.outputs, *conv.kernels, conv.channels // conv.group, seed=1)
    bias = floats(conv.outputs, seed=2)
    check(
        lambda: network(
            {"x": f"f32[{'x'.join(map(str, x.shape))}]"}, {"w": filter, "b": bias},
            lambda f, *operands: convolution(conv, f, *operands),
        ),
        {"x": x},
        convolve(conv, rounded(x), rounded(filter), bias.astype(np.float64)),
    )  # fmt: skip


def test_a_computed_filter() -> None:
    conv = Conv((5, 6), 40, 42, (3, 3), pads=(1, 1, 1, 1), group=2)
    x, filter, bias = floats(1, 5, 6, 40), floats(42, 3, 3, 20, seed=1), np.zeros(42, np.float32)
    shapes: dict[str, str | Type] = {"x": "f32[1x5x6x40]", "w": "f32[42x3x3x20]"}
    check(
        lambda: network(shapes, {"b": bias}, lambda f, *operands: convolution(conv, f, *operands)),
        {"x": x, "w": filter},
        convolve(conv, rounded(x), rounded(filter), bias.astype(np.float64)),
    )


def test_processors_without_such_instructions_compute_the_same() -> None:
    """Text with products in bf16 runs everywhere."""
    conv = Conv((6, 7), 4, 9, (3, 3), pads=(1, 1, 1, 1))
    x, filter, bias = floats(1, 6, 7, 4), floats(9, 3, 3, 4, seed=1), floats(9, seed=2)
    module = network(
        {"x": "f32[1x6x7x4]"}, {"w": filter, "b": bias},
        lambda f, *operands: convolution(conv, f, *operands),
    )  # fmt: skip
    expected = convolve(conv, rounded(x), rounded(filter), bias.astype(np.float64))
    own = CpuBackend(CpuOptions(cpu="x86-64-v3"))
    packing = PackProductsPass(own.target.variant, chooser=InBf16(), bf16=True)
    packing.run(module.main, PassContext(evaluate))
    assert kinds(module, own) == ["bf16"]
    result = glowpy.compile(module, own)({"x": x})["y"]
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_depthwise_convolutions_stay_in_f32() -> None:
    conv = Conv((6, 7), 24, 24, (3, 3), pads=(1, 1, 1, 1), group=24)
    x, filter, bias = floats(1, 6, 7, 24), floats(24, 3, 3, 1, seed=1), floats(24, seed=2)

    def make() -> Module:
        return network(
            {"x": "f32[1x6x7x24]"}, {"w": filter, "b": bias},
            lambda f, *operands: convolution(conv, f, *operands),
        )  # fmt: skip

    own = backend()
    assert kinds(make(), own) == []
    exact = glowpy.compile(make(), CpuBackend())({"x": x})["y"]
    np.testing.assert_array_equal(glowpy.compile(make(), own)({"x": x})["y"], exact)


def test_special_values() -> None:
    """Infinities and NaN go where they go in f32; the smallest floats may count as zeros."""
    lhs, rhs = floats(6, 16), floats(16, 40, seed=1)
    lhs[0, 3], lhs[1, 2], lhs[2, 5], rhs[1, 7] = np.inf, -np.inf, np.nan, np.inf
    lhs[3] = 1e-39
    lhs[4, 0] = np.float32(3.4e38)  # which is rounded to infinity
    function = glowpy.compile(
        network({"x": "f32[6x16]"}, {"w": rhs}, lambda f, x, w: f.create_mat_mul("p", x, w)),
        backend(),
    )
    with np.errstate(all="ignore"):
        expected = rounded(lhs) @ rounded(rhs)
    expected[3, 7] = np.nan  # zero times infinity
    result = function({"x": lhs})["y"]
    assert np.isnan(result[3, 7]) or np.isinf(result[3, 7])
    result[3, 7] = np.nan
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_ties_are_rounded_to_even() -> None:
    """1 + 2**-8 lies between two numbers in bf16, as 1 + 3 * 2**-8 does."""
    ties = np.array([[1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 1 + 2**-8 + 2**-20]] * 4, np.float32)
    function = glowpy.compile(
        network({"x": "f32[4x4]"}, {"w": np.eye(4, 16, dtype=np.float32)}, lambda f, x, w: f.create_mat_mul("p", x, w)),
        backend(),
    )  # fmt: skip
    np.testing.assert_array_equal(
        function({"x": ties})["y"][0, :4], np.array([1, 1 + 2**-6, -1, 1 + 2**-7], np.float32)
    )


def blocks(f: Function, x: Operand, *weights: Operand) -> Any:
    """Two residual blocks of convolutions of one pixel: sums and products read the same values."""
    total: Operand = f.create_relu("first", x)
    for number in range(2):
        narrow, wide, bias, other = weights[4 * number : 4 * number + 4]
        lists = ((1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1)
        inner = f.create_relu("inner", f.create_convolution("narrow", total, narrow, bias, *lists))
        back = f.create_convolution("wide", inner, wide, other, *lists)
        total = f.create_relu("sum", f.create_add("add", back, total))
    return total


def test_what_is_rounded_once_is_read_by_all() -> None:
    """Residual sums of large images read what products read, in bf16; small ones are exact."""
    constants: dict[str, Array] = {}
    for number in range(2):
        constants |= {
            f"n{number}": floats(32, 1, 1, 128, seed=number) / 8,
            f"w{number}": floats(128, 1, 1, 32, seed=number) / 8,
            f"b{number}": floats(32), f"o{number}": floats(128),
        }  # fmt: skip
    for side, expected in ((9, 0), (40, 1)):
        module = network({"x": f"f32[1x{side}x{side}x128]"}, constants, blocks)
        own = backend()
        program = compilation(module, own).program
        widened = [
            inst
            for inst in program.ir.instructions
            if inst.SCHEMA.mnemonic == "convert"
            and inst.operands[0].value.type.kind is ElemKind.F32
        ]
        assert len(widened) >= expected
        assert bool(widened) == bool(expected)
        x = floats(1, side, side, 128)
        plain = glowpy.compile(
            network({"x": f"f32[1x{side}x{side}x128]"}, constants, blocks), "interpreter"
        )
        exact = plain({"x": x})["y"]
        error = glowpy.compile(module, own)({"x": x})["y"] - exact
        assert np.sqrt(np.mean(error**2)) < 0.005 * np.sqrt(np.mean(exact**2))


@pytest.mark.parametrize("kind", ["f32", "f64", "i32", "i64", "f16"])
def test_what_the_model_casts_is_read_exactly(kind: str) -> None:
    """A cast of the model's own, which no product reads, does not round the sums beside it."""
    wide = parse_type(f"{kind}[3x8]")

    def build(f: Function, x: Operand) -> Any:
        total = f.create_add("r", x, x)
        half = f.create_convert("h", wide.with_kind(ElemKind.BF16), total)
        return f.create_sub("s", total, f.create_convert("w", wide, half))

    module = network({"x": wide}, {}, build)
    assert not ReadRoundedPass().run(module.main, PassContext(evaluate))


@pytest.mark.parametrize("kind", ["f32", "i32"])
def test_large_values_that_the_model_casts(kind: str) -> None:
    """Their differences from themselves in bf16 are what the interpreter gives."""
    own = backend()
    length = own.target.variant.machine.second_cache // 4 + 16
    wide = parse_type(f"{kind}[{length}]")

    def build(f: Function, x: Operand) -> Any:
        total = f.create_add("r", x, x)
        half = f.create_convert("h", wide.with_kind(ElemKind.BF16), total)
        f.create_save("save_h", half, f.module.create_placeholder("half", half.result.type))
        return f.create_mul("s", total, x)

    x = np.arange(length, dtype=wide.kind.dtype) % 10007
    results = glowpy.compile(network({"x": wide}, {}, build), own)({"x": x})
    np.testing.assert_array_equal(results["y"], (x + x) * x)
    np.testing.assert_array_equal(results["half"], (x + x).astype(ml_dtypes.bfloat16))


def casts(f: Function, *values: NodeValue) -> Any:
    """Sums of each kind in bf16, at once and by way of f32; the two of the first are put together."""
    halves = []
    for value in values:
        total = f.create_add("sum", value, value)
        single = f.create_convert("single", value.type.with_kind(ElemKind.F32), total)
        for number in (total, single):
            type = value.type.with_kind(ElemKind.BF16)
            halves.append(f.create_convert("half", type, number).result)
            out = f.module.create_placeholder(f"h{len(halves)}", type)
            f.create_save("save", halves[-1], out)
    return f.create_concat("both", halves[:2], 0)


CAST_KINDS = ("f64", "f32", "f16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")


@pytest.mark.parametrize("cpu", ["znver4", "neoverse-v1"])
def test_casts_call_no_library(cpu: str) -> None:
    """Code for bf16 rounds each kind by instructions: there is nobody to call."""
    family = "x86_64" if cpu == "znver4" else "aarch64"
    own = CpuBackend(CpuOptions(precision="bf16", cpu=cpu, target=f"{family}-linux-gnu"))
    module = network({f"x_{kind}": f"{kind}[5x37]" for kind in CAST_KINDS}, {}, casts)
    assembly = own.emit(compilation(module, own).program, "asm")
    assert not re.findall(r"__(?:trunc|extend|float|fix)\w+", assembly)


def test_casts_from_f64() -> None:
    """They are rounded to f32, and that to bf16, as on the interpreter."""
    x = floats(5, 37).astype(np.float64)
    x[0, :3] = 0.5 + 2**-9 + 2**-40, 1e300, np.nan
    function = glowpy.compile(network({"x": "f64[5x37]"}, {}, casts), backend())
    with np.errstate(all="ignore"):
        expected = (x + x).astype(np.float32).astype(ml_dtypes.bfloat16)
    both = np.concatenate([expected, expected]).astype(np.float32)
    np.testing.assert_array_equal(function({"x": x})["y"].astype(np.float32), both)


def test_any_number_of_threads_computes_the_same_bits() -> None:
    """What a thread multiplies does not depend on how many there are."""
    constants = {"w": floats(96, 200), "v": floats(200, 64, seed=1)}

    def build(f: Function, x: Operand, w: Operand, v: Operand) -> Any:
        return f.create_mat_mul("q", f.create_relu("r", f.create_mat_mul("p", x, w)), v)

    x = floats(150, 96)
    results = []
    for threads in (1, 2, 3):
        own = backend(threads=threads)
        module = network({"x": "f32[150x96]"}, constants, build)
        assert kinds(module, own) == ["bf16", "bf16"]
        results.append(glowpy.compile(module, own)({"x": x})["y"].tobytes())
    assert results[0] == results[1] == results[2]


def test_open_extents() -> None:
    """How many rows there are is known when the network runs."""
    rhs = floats(12, 40, seed=1)
    own = backend()
    type = Type(ElemKind.F32, (symbol("N", 1, 64), 12))
    module = network({"x": type}, {"w": rhs}, lambda f, x, w: f.create_mat_mul("p", x, w))
    assert kinds(module, own) == ["bf16"]
    function = glowpy.compile(module, own)
    for rows in (1, 7, 33):
        lhs = floats(rows, 12)
        np.testing.assert_allclose(
            function({"x": lhs})["y"], rounded(lhs) @ rounded(rhs), rtol=1e-5, atol=1e-5
        )


def test_models_in_bf16_are_not_rounded_again() -> None:
    """A product reads what the model has in bf16 as it stands."""
    w = floats(16, 40).astype(ml_dtypes.bfloat16)
    module = network({"x": "bf16[8x16]"}, {"w": w}, lambda f, x, w: f.create_mat_mul("p", x, w))
    program = compilation(module, backend()).program
    converted = [i for i in program.ir.instructions if i.SCHEMA.mnemonic == "convert"]
    assert [i.operands[1].value.type.kind.value for i in converted] == ["f32"]


def test_it_is_f32_that_takes_less_time() -> None:
    """The model decides: a 3 x 3 convolution of many pixels has fewer multiplications by Winograd's algorithm."""
    conv = Conv((56, 56), 64, 64, (3, 3), pads=(1, 1, 1, 1))
    module = network(
        {"x": "f32[1x56x56x64]"}, {"w": floats(64, 3, 3, 64) / 24, "b": floats(64)},
        lambda f, *operands: convolution(conv, f, *operands),
    )  # fmt: skip
    own = backend()
    own.compiler.chooser = Chooser()
    names = [i.SCHEMA.mnemonic for i in compilation(module, own).program.ir.instructions]
    assert "cpu_winograd" in names


TARGETS: list[tuple[dict[str, Any], str]] = [
    ({"cpu": "x86-64-v3", "target": "x86_64-linux-gnu"}, "x86-64-v3 does not multiply numbers in bf16"),
    ({"target": "rpi4"}, "cortex-a72 does not multiply numbers in bf16"),
    ({"target": "riscv64"}, "no processors of riscv64"),
    ({"target": "x86_64-linux-gnu", "cpu": "znver4", "features": "-avx512bf16"}, "it lacks avx512bf16"),
    ({"target": "x86_64-linux-gnu", "cpu": "znver4", "optimize": "size"}, "optimize asks for code that is small"),
    ({"precision": "f16"}, "expected one of f32, bf16"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), TARGETS, ids=str)
def test_refused(options: dict[str, Any], message: str) -> None:
    """Nothing is computed in f32 without being said."""
    with pytest.raises(UserError, match=message):
        CpuBackend(CpuOptions(**{"precision": "bf16", **options}))


@pytest.mark.parametrize(
    ("options", "instruction"),
    [
        ({"target": "x86_64-linux-gnu", "cpu": "znver4"}, "vdpbf16ps"),
        ({"target": "x86_64-linux-gnu", "cpu": "x86-64-v4", "features": "+avx512vnni,+avx512bf16"}, "vdpbf16ps"),
        ({"target": "aarch64-linux-gnu", "cpu": "neoverse-v1"}, "bfmmla"),
        ({"target": "aarch64-linux-gnu", "features": "+dotprod,+i8mm,+bf16"}, "bfmmla"),
    ],
    ids=str,
)  # fmt: skip
def test_instructions(options: dict[str, Any], instruction: str) -> None:
    """Code for other processors, too, has them; that in f32 does not."""
    module = network(
        {"x": "f32[32x64]"}, {"w": floats(64, 64)}, lambda f, x, w: f.create_mat_mul("p", x, w)
    )
    cases: list[tuple[dict[str, Any], bool]] = [({"precision": "bf16"}, True), ({}, False)]
    for extra, expected in cases:
        own = CpuBackend(CpuOptions(**options, **extra))
        assert (instruction in own.emit(compilation(module, own).program, "asm")) is expected


def test_code_for_bf16_is_refused_where_there_is_none() -> None:
    """Text that was lowered for bf16 needs the option."""
    module = network(
        {"x": "f32[32x64]"}, {"w": floats(64, 64)}, lambda f, x, w: f.create_mat_mul("p", x, w)
    )
    options: dict[str, Any] = {"target": "x86_64-linux-gnu", "cpu": "znver4"}
    own = CpuBackend(CpuOptions(precision="bf16", **options))
    (inst,) = (
        i
        for i in compilation(module, own).program.ir.instructions
        if i.SCHEMA.mnemonic == "cpu_matmul"
    )
    operation = Operation.of_inst(inst)
    assert own.unsupported(operation) == ""
    assert "compile with precision bf16" in CpuBackend(CpuOptions(**options)).unsupported(operation)


# ---------------------------------------------------------------------------- sessions, the drop-in, verbs, bundles


def run_cli(*words: str) -> tuple[int, str]:
    """The exit status of `glowpy`, and what it says."""
    out = io.StringIO()
    with contextlib.redirect_stderr(out):
        return run([*words], io.StringIO(), out), out.getvalue()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file with one product, which is faster in bf16."""
    weights = {"w": floats(256, 512) / 16}
    path = tmp_path / "net.onnx"
    module = network({"x": "f32[64x256]"}, weights, lambda f, x, w: f.create_mat_mul("p", x, w))
    glowpy.save(module, path)
    return path


def expected_of(model: Path, x: Array) -> Array:
    """The product of rounded operands."""
    weights = onnx.numpy_helper.to_array(onnx.load(model).graph.initializer[0])
    return np.asarray(rounded(x) @ rounded(weights))


def test_sessions(model: Path) -> None:
    """Each face takes the option, and says what is wrong with one."""
    backend()
    x = floats(64, 256)
    options = drop_in.SessionOptions()
    options.add_session_config_entry("glowpy.precision", "bf16")
    exact = glowpy.InferenceSession(model).run(None, {"x": x})[0]
    for session in (
        glowpy.InferenceSession(model, precision="bf16"),
        drop_in.InferenceSession(str(model), options),
    ):
        result = session.run(None, {"x": x})[0]
        np.testing.assert_allclose(result, expected_of(model, x), rtol=1e-5, atol=1e-5)
        assert np.abs(result - exact).max() > 1e-3  # of the cache, neither takes the other
    with pytest.raises(UserError, match="no option 'precision'"):
        glowpy.InferenceSession(model, backend="interpreter", precision="bf16")
    with pytest.raises(UserError, match="expected precision among the options"):
        glowpy.InferenceSession(model, backend=CpuBackend(), precision="bf16")
    options.add_session_config_entry("glowpy.precision", "f16")
    with pytest.raises(
        drop_in.capi.onnxruntime_pybind11_state.InvalidArgument, match="expected f32 or bf16"
    ):
        drop_in.InferenceSession(str(model), options)


def test_verbs(model: Path) -> None:
    """What compiles takes the option; the interpreter refuses it."""
    backend()
    status, output = run_cli("dump", str(model), "--precision", "bf16", "--stage", "ir")
    assert status == 0
    assert "bf16[64x256]" in output
    status, output = run_cli("dump", str(model), "--precision", "bf16", "--stage", "strategy")
    assert status == 0
    assert "in bf16" in output
    assert "not by" not in output
    status, errors = run_cli("run", str(model), "--precision", "bf16", "--backend", "interpreter")
    assert status != 0
    assert "no option --precision" in errors
    status, output = run_cli(
        "run", str(model), "--precision", "bf16", "--check-with", "interpreter"
    )
    assert status == 0, output
    assert "dB" in output
    target = ("--target", "riscv64")
    status, errors = run_cli(
        "bundle", str(model), "-o", str(model.parent / "b"), "--precision", "bf16", *target
    )
    assert status != 0
    assert "leave precision out" in errors


@pytest.mark.parametrize(
    ("target", "emulator"),
    [
        ({}, "cc"),
        ({"target": "aarch64-linux-gnu", "features": "+dotprod,+i8mm,+bf16"}, "qemu-aarch64"),
    ],
    ids=["host", "aarch64"],
)
def test_bundles(
    target: dict[str, Any],
    emulator: str,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The example of a bundle gives what the interpreter gives of the same program; weights take half."""
    need(emulator)
    monkeypatch.setenv("QEMU_CPU", "max")
    own = backend() if not target else CpuBackend(CpuOptions(precision="bf16", **target))
    glowpy.bundle(glowpy.load(model), tmp_path / "half", BundleOptions("half", selftest=1), own)
    manifest = json.loads((tmp_path / "half" / "half.json").read_text())
    assert manifest["compile"]["precision"] == "bf16"
    assert manifest["target"]["bf16"] is True
    plain = CpuBackend(CpuOptions(**target))
    glowpy.bundle(glowpy.load(model), tmp_path / "whole", BundleOptions("whole"), plain)
    whole = json.loads((tmp_path / "whole" / "whole.json").read_text())
    assert "precision" not in whole["compile"]
    assert "bf16" not in whole["target"]
    assert manifest["areas"]["constants"] < 0.55 * whole["areas"]["constants"]
    status, output = run_cli("verify", str(tmp_path / "half"))
    assert status == 0, output
