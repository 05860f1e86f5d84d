"""What a new operator takes, and what is said when a piece of it is forgotten: both tried in a copy of the tree."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow

SCALAR_SPEC = (
    'Elementwise("Cube", 1, "The third power", "input * input * input", "input * input * input", '
    'FLOATS, derivative=("mul(g, mul(input, add(input, add(input, input))))",), onnx="Cube")\n'
)
SCALAR_ROW = '    "cube": (lambda a: a * a * a, MATH),\n'

SPEC = (
    'Op("Flip", "The elements along dimension `axis` in reverse order.", inputs=["input"], '
    'attrs=[integer("axis")], traits=["axes"], kernel={"input": ("f32", "f64")}%s)\n'
)
INFER = """

@infer(FlipNode)
def _infer_flip(input: Type, *, axis: int) -> Type:
    normalize_axis(axis, input.rank)
    return input
"""
INTERPRET = """

@interpret(FlipInst)
def _flip(result: Tensor, input: Tensor, *, axis: int) -> None:
    np.copyto(result.array, np.flip(input.array, axis))
"""
DIFFERENTIATE = """

@derivative(FlipNode)
def _differentiate_flip(f: Function, n: FlipNode, g: NodeValue) -> list[Operand | None]:
    return [f.create_flip(n.name, g, n.axis)]
"""
KERNEL = """
#define FLIP(suffix, type) \\
  void libjit_flip_##suffix(type *result, const type *input, const ints_t *result_shape, const ints_t *input_shape, \\
                            dim_t axis) { \\
    dim_t inner = 1, outer = 1, length = input_shape->at[axis]; \\
    for (dim_t i = 0; i < axis; i++) outer *= input_shape->at[i]; \\
    for (dim_t i = axis + 1; i < input_shape->size; i++) inner *= input_shape->at[i]; \\
    for (dim_t i = 0; i < outer; i++) \\
      for (dim_t j = 0; j < length; j++) \\
        for (dim_t k = 0; k < inner; k++) \\
          result[(i * length + j) * inner + k] = input[(i * length + length - 1 - j) * inner + k]; \\
  }
FLIP(f32, float)
FLIP(f64, double)
"""
ROW = """

def _flip(kind: ElemKind) -> Iterator[Case]:
    for shape, axis in [((5,), 0), ((2, 3, 4), 1), ((3, 17), 1), ((0, 2), 1)]:
        x = _numbered(kind, shape)
        yield Case([x], [np.flip(x, axis)], {"axis": axis})


ROWS.append(Row(FlipNode, (ElemKind.F32, ElemKind.F64), _flip))


"""
IMPORT = """

@from_onnx("Flip", domain="example")
def _flip(n: OnnxNode) -> Value:
    return n.f.create_flip(n.name, n.input(0), n.axis(n.type(0).rank, 0)).result
"""
USE = """
import numpy as np
import onnx.parser
import glowpy
from glowpy.autodiff.gradients import gradients

model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17, "example": 1]>
    g (float[2,3] x) => (float[2,3] y) { y = example.Flip<axis=1>(x) }''')
x = np.arange(6, dtype=np.float32).reshape(2, 3)
for backend in ("interpreter", "cpu"):
    try:
        module = glowpy.load(model)
        compiled = glowpy.compile(module, backend, glowpy.CompileOptions(cache=False))
        assert np.array_equal(compiled({"x": x})["y"], x[:, ::-1])
        print(backend, "right")
    except glowpy.GlowError as error:
        print(backend, type(error).__name__, error)
try:
    module = glowpy.load(model)
    gradients(module.main, module.main.nodes[0].results[0], [module.main.inputs[0].value])
    print("gradient right")
except glowpy.GlowError as error:
    print("gradient", type(error).__name__, error)
"""


class Tree:
    """A copy of the sources in which an operator is added."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "tree"
        # With the bytecode: a file that is changed has another time than its own.
        ignored = shutil.ignore_patterns(".*", "goldens", "bitcode")
        for name in ("glowpy", "classgen", "libjit", "tests", "pyproject.toml"):
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, self.root / name, ignore=ignored)
            else:
                shutil.copy(source, self.root / name)
        (self.root / "docs" / "reference").mkdir(parents=True)

    def append(self, file: str, text: str) -> None:
        with (self.root / file).open("a", encoding="utf-8") as stream:
            stream.write(text)

    def replace(self, file: str, old: str, new: str) -> None:
        path = self.root / file
        text = path.read_text(encoding="utf-8")
        assert text.count(old) >= 1, (file, old)
        path.write_text(text.replace(old, new, 1), encoding="utf-8")

    def python(self, *argv: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *argv]
        return subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=False)

    def generate(self) -> None:
        done = self.python("-m", "classgen")
        assert done.returncode == 0, done.stderr

    def test(self, *argv: str) -> str:
        """The output of some tests of the copy."""
        done = self.python("-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *argv)
        assert done.returncode in (0, 1), done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


COMPLETE = "tests/unit/test_complete.py"


def add_flip(tree: Tree, *, without: str = "", spec: str = "") -> None:
    """Adds a structured operator: spec, rules, kernel, test row and import function, less one of these."""
    tree.append("classgen/specs/shape.py", SPEC % spec)
    pieces: Mapping[str, tuple[str, str]] = {
        "infer": ("glowpy/ops/shape.py", INFER),
        "interpret": ("glowpy/ops/shape.py", INTERPRET),
        "derivative": ("glowpy/ops/shape.py", DIFFERENTIATE),
        "kernel": ("libjit/src/shape.c", KERNEL),
        "row": ("tests/ops/test_shape.py", ROW),
        "import": ("glowpy/importer/onnx/shape.py", IMPORT),
    }
    tree.replace(
        "glowpy/ops/shape.py", "    BroadcastNode,\n", "    BroadcastNode,\n    FlipNode,\n"
    )
    tree.replace(
        "glowpy/ops/shape.py", "    BroadcastInst,\n", "    BroadcastInst,\n    FlipInst,\n"
    )
    tree.replace(
        "tests/ops/test_shape.py", "    BroadcastNode,\n", "    BroadcastNode,\n    FlipNode,\n"
    )
    for name, (file, text) in pieces.items():
        if name == without:
            continue
        if name == "row":
            tree.replace(file, "\n\n@on_every_backend(ROWS)", f"{text}@on_every_backend(ROWS)")
        else:
            tree.append(file, text)
    tree.generate()


def used(tree: Tree) -> list[str]:
    """What a program that uses the structured operator prints."""
    done = tree.python("-c", USE)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_elementwise_operator_is_a_line_of_spec_and_a_line_of_test(tree: Tree) -> None:
    tree.append("classgen/specs/elementwise.py", SCALAR_SPEC)
    tree.replace("tests/ops/test_elementwise.py", '    "sqrt": (', f'{SCALAR_ROW}    "sqrt": (')
    tree.generate()
    said = tree.test("-k", "cube or Cube", "tests/ops/test_elementwise.py", COMPLETE)
    assert "failed" not in said, said
    assert tree.python("-m", "classgen", "--check").returncode == 0


def test_reference_of_an_elementwise_operator_is_forgotten(tree: Tree) -> None:
    tree.append("classgen/specs/elementwise.py", SCALAR_SPEC)
    tree.generate()
    said = tree.test("-k", "cube", "tests/ops/test_elementwise.py")
    assert "KeyError" not in said, said
    assert "cube has no reference" in said, said


def test_derivative_of_an_elementwise_operator_is_forgotten(tree: Tree) -> None:
    without = SCALAR_SPEC.replace(SCALAR_SPEC[SCALAR_SPEC.index("derivative=") :], 'onnx="Cube")\n')
    tree.append("classgen/specs/elementwise.py", without)
    done = tree.python("-m", "classgen")
    assert done.returncode == 1
    assert (
        "Cube: expected derivative=(one expression for each input) or no_derivative=" in done.stderr
    )


def test_structured_operator(tree: Tree) -> None:
    add_flip(tree)
    said = tree.test("-k", "flip or Flip", "tests/ops/test_shape.py", COMPLETE)
    assert "failed" not in said, said
    said = tree.test("tests/libjit/test_kernels.py::test_every_kernel_has_cases[flip]")
    assert "1 passed" in said, said
    assert used(tree) == ["interpreter right", "cpu right", "gradient right"]


@pytest.mark.parametrize(
    ("without", "missing"),
    [
        ("infer", "FlipNode has no 'infer' rule"),
        ("interpret", "FlipInst has no 'interpret' rule"),
        ("derivative", "FlipNode has no 'derivative' rule"),
        ("kernel", "libjit_flip_f32"),
        ("row", "FlipNode has no row in tests/ops/"),
    ],
)
def test_a_piece_of_a_structured_operator_is_forgotten(
    tree: Tree, without: str, missing: str
) -> None:
    """The completeness tests name the operator and what it lacks, once."""
    add_flip(tree, without=without)
    failures = tree.test("-k", "flip or Flip", COMPLETE).splitlines()
    named = [line for line in failures if line.startswith("FAILED")]
    assert len(named) == 1, named
    assert any(missing in line for line in failures), failures


@pytest.mark.parametrize(
    ("without", "interpreter", "cpu"),
    [
        (
            "infer",
            "InternalError g: node 'y' (#0): %y: no 'infer' rule for FlipNode",
            "InternalError g: node 'y' (#0): %y: no 'infer' rule for FlipNode",
        ),
        ("interpret", "InternalError %y: no 'interpret' rule for FlipInst", "right"),
        (
            "kernel",
            "right",
            "UnsupportedError g: node 'y' (#0): %y: cpu backend: no kernel for flip on f32[2x3], f32[2x3]: "
            "classgen/specs/shape.py declares libjit_flip_f32, which the kernels of libjit for",
        ),
    ],
)
def test_program_that_meets_what_is_forgotten_says_so(
    tree: Tree, without: str, interpreter: str, cpu: str
) -> None:
    add_flip(tree, without=without)
    lines = used(tree)
    assert any(line.startswith(f"interpreter {interpreter}") for line in lines), lines
    assert any(line.startswith(f"cpu {cpu}") for line in lines), lines


def test_second_backend_gets_files_and_kernels_of_its_own(tree: Tree) -> None:
    before = (tree.root / "libjit" / "include" / "kernels_gen.h").read_text()
    spec = (
        "from classgen.dsl import InstOnly, NodeOnly, Op\n"
        'Op("ToyMix", "lhs * rhs", inputs=["lhs", "rhs"], kernel={"lhs": ("f32",)}, backend="toy",\n'
        '   no_derivative="a toy")\n'
        'NodeOnly("ToyNode", "lowered", inputs=["input"], backend="toy", no_derivative="a toy")\n'
        'InstOnly("ToyStep", "a step", inputs=["input"], results=["result"], backend="toy")\n'
    )
    (tree.root / "classgen" / "specs" / "backend_toy.py").write_text(spec)
    tree.generate()
    toy = tree.root / "glowpy" / "backends" / "toy"
    names = sorted(str(file.relative_to(toy)) for file in toy.rglob("*.*"))
    header = "kernels/include/kernels_gen.h"
    assert names == ["insts_gen.py", header, "kernels_gen.py", "nodes_gen.py"]
    assert "void toy_mix_f32(" in (toy / header).read_text()
    assert (tree.root / "libjit" / "include" / "kernels_gen.h").read_text() == before
    (tree.root / "classgen" / "specs" / "backend_toy.py").write_text(
        spec.replace(', backend="toy")\n', ")\n")
    )
    done = tree.python("-m", "classgen")
    assert done.returncode == 1
    assert 'backend_toy.py: ToyStep: expected backend="toy", got ""' in done.stderr
