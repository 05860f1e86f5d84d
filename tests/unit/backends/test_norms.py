"""Layer norms that become one instruction, with what follows as its epilogue."""

from __future__ import annotations

import numpy as np
import pytest

import glowpy
from glowpy import CpuBackend, CpuOptions
from glowpy.backends.cpu.insts_gen import CpuStandardizeInst
from glowpy.backends.cpu.nodes_gen import create_cpu_standardize
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type, parse_type
from glowpy.engine import compilation
from glowpy.graph.function import Function, Module
from glowpy.graph.node import NodeValue
from glowpy.graph.verifier import verify_module
from glowpy.support.errors import UserError
from glowpy.support.symbolic import static, symbol
from tests.unit.backends.test_packed import floats


def network(
    type: str | Type, axes: tuple[int, ...], *, centred: bool = True, divides: bool = False
) -> Module:
    """A norm with scale and bias, and ReLU."""
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type(type) if isinstance(type, str) else type)
    numbers = x.value
    if centred:
        numbers = f.create_sub("apart", x, f.create_reduce_mean("mean", x, axes)).result
    square = f.create_reduce_mean("square", f.create_mul("power", numbers, numbers), axes)
    root = f.create_sqrt("root", f.create_add("raised", square, _number(f, x.type, 1e-5)))
    if divides:
        standard = f.create_div("standard", numbers, root).result
    else:
        standard = f.create_mul("standard", numbers, f.create_reciprocal("r", root)).result
    shape = static(
        size if axis in axes else 1 for axis, size in enumerate(x.type.shape) if axis >= min(axes)
    )
    scale, bias = (
        module.create_constant(name, (floats(*shape) + number).astype(x.type.kind.dtype))
        for number, name in enumerate(("scale", "bias"))
    )
    moved = f.create_add("moved", f.create_mul("scaled", standard, scale), bias)
    result = f.create_relu("relu", moved)
    f.create_save("save", result, module.create_placeholder("y", result.result.type))
    return module


def _number(f: Function, like: Type, number: float) -> NodeValue:
    return f.create_splat("number", Type(like.kind, (1,)), number).result


def is_fused(module: Module, backend: CpuBackend | None = None) -> bool:
    program = compilation(module, backend or CpuBackend()).program
    return any(isinstance(inst, CpuStandardizeInst) for inst in program.ir.instructions)


@pytest.mark.parametrize(
    ("type", "axes"),
    [
        ("f32[7x96]", (1,)),
        ("f32[2x3x771]", (2,)),
        ("f32[300x64]", (1,)),
        ("f32[3x4x5x9]", (2, 3)),
        ("f32[1x16384]", (1,)),
    ],
)
@pytest.mark.parametrize(("centred", "divides"), [(True, False), (True, True), (False, False)])
def test_rows_are_normalized(
    type: str, axes: tuple[int, ...], centred: bool, divides: bool
) -> None:
    """On any number of threads to the same bits, and by the interpreter, too."""
    module = network(type, axes, centred=centred, divides=divides)
    assert is_fused(module)
    x = {"x": 3 * floats(*module.placeholders[0].type.extents) + 1}
    expected = glowpy.compile(module, "interpreter")(x)["y"]
    backends = [CpuBackend(CpuOptions(threads=threads)) for threads in (1, 2, 3, 7)]
    results = [glowpy.compile(module, backend)(x)["y"] for backend in backends]
    np.testing.assert_allclose(results[0], expected, rtol=1e-5, atol=1e-5)
    assert len({result.tobytes() for result in results}) == 1
    program = compilation(module, "cpu").program
    packed = glowpy.InterpreterBackend().function(program)
    np.testing.assert_allclose(packed(x)["y"], expected, rtol=1e-5, atol=1e-5)


def test_a_reciprocal_may_be_a_quotient() -> None:
    """As exporters write torch.rsqrt, in RMSNorm."""
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[3x64]"))
    square = f.create_reduce_mean("square", f.create_mul("power", x, x), (1,))
    root = f.create_sqrt("root", f.create_add("raised", square, _number(f, x.type, 1e-6)))
    result = f.create_mul("y", x, f.create_div("inverse", _number(f, x.type, 1.0), root))
    f.create_save("save", result, module.create_placeholder("z", x.type))
    assert is_fused(module)
    array = floats(3, 64)
    expected = array / np.sqrt((array.astype(np.float64) ** 2).mean(1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(
        glowpy.compile(module, "cpu")({"x": array})["z"], expected, rtol=1e-5
    )


def test_what_follows_is_its_epilogue() -> None:
    program = compilation(network("f32[7x96]", (1,)), "cpu").program
    (run,) = program.ir.runs
    assert [inst.SCHEMA.mnemonic for inst in run.members] == [
        "cpu_standardize",
        "mul",
        "add",
        "max",
    ]


def test_a_number_of_rows_that_is_open() -> None:
    module = network(Type(ElemKind.F32, (symbol("n", 1, 9), 64)), (1,))
    assert is_fused(module)
    compiled, reference = (glowpy.compile(module, name) for name in ("cpu", "interpreter"))
    for rows in (1, 5, 9):
        x = {"x": floats(rows, 64)}
        np.testing.assert_allclose(compiled(x)["y"], reference(x)["y"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("type", "axes"),
    [("f32[96x7]", (0,)), ("f32[4x3]", (1,)), ("f32[2x16385]", (1,)), ("f64[7x96]", (1,))],
)
def test_what_stays_as_it_is(type: str, axes: tuple[int, ...]) -> None:
    """Columns, rows that are too short or too long, and doubles."""
    assert not is_fused(network(type, axes))


def test_a_mean_that_is_read_elsewhere_stays() -> None:
    module = network("f32[7x96]", (1,))
    mean = next(node for node in module.main.nodes if node.name == "mean")
    output = module.create_placeholder("z", mean.type)
    module.main.create_save("keep", mean, output)
    assert not is_fused(module)


def test_code_that_is_small_or_without_vectors_has_no_kernel_for_it() -> None:
    for options in (CpuOptions("cortex-m4"), CpuOptions(optimize="size")):
        assert not is_fused(network("f32[7x96]", (1,)), CpuBackend(options))


def test_types_are_verified() -> None:
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f64[3x4]"))
    create_cpu_standardize(f, "d", x.type, x, epsilon=0.5, centred=True)
    with pytest.raises(UserError, match="of f32"):
        verify_module(module)
