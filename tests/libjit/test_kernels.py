"""Every kernel, called as it stands: on memory that ends at its buffers' ends, for every vector width the host has.

A network calls kernels with constant shapes, which LLVM then specialises; here they are ordinary functions of a shared
library. One build checks for undefined behaviour as it runs and traps.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import pytest

from glowpy.backends.cpu.kernels_gen import KERNELS
from glowpy.backends.cpu.variant import VARIANTS, Variant
from glowpy.llvm.scalars_gen import SCALARS
from libjit.compile import ROOT, host_variants, read_targets
from tests.libjit import scalar_cases
from tests.libjit.kernel_runner import SCHEMAS, cases_of

Report = dict[str, Any]

FLAGS = [
    "-std=c11",
    "-fwrapv",
    "-ffp-contract=fast-honor-pragmas",
    "-fno-math-errno",
    "-g0",
    "-Wno-pass-failed",
]
"""Multiplications and additions are joined unless a pragma forbids it, as LLVM joins those of networks: it goes by the
flags of instructions. With `fast` alone zig's code generator joins them all, and rows are rounded otherwise."""
OPTIMISED = ["-O1", "-fno-sanitize=all", "-DLATE=static __attribute__((noinline))"]
"""Inlined into ordinary functions, late ones would be most of the code, and of the time that it takes to compile."""
SCALAR = [*OPTIMISED, "-DVECTOR_BYTES=4"]
"""What every target without vector instructions is compiled with."""
ALONE = ["-shared", "-nostdlib"]
"""What is missing comes from this process. zig would compile a library of its own for every processor."""
CHECKED = ["-O0", "-fsanitize=undefined,float-cast-overflow", "-fsanitize-trap=all"]


def _widths() -> dict[str, Variant]:
    """The first variant of each vector width of this machine's family: only dot.h tells those of one width apart."""
    names = host_variants(platform.machine())
    by_width: dict[int, Variant] = {}
    for variant in VARIANTS:
        if variant.name in names:
            by_width.setdefault(variant.vector_bytes, variant)
    return {variant.name: variant for variant in by_width.values()}


WIDTHS = _widths()
DOTS = {
    variant.name: variant
    for variant in VARIANTS
    if variant.name in host_variants(platform.machine()) and variant.name not in WIDTHS
}
"""The others of this machine's family."""
BASELINE = next(iter(WIDTHS.values()), VARIANTS[0])
SOURCE = ROOT / "src"
BUILDS = [*(list(WIDTHS)[1:] or WIDTHS), "checked"]
"""Vectors of one width are tried in one build: the narrowest in that which checks, unless there are no others."""
JOBS = [*KERNELS, *(f"scalar {mnemonic}" for mnemonic in SCALARS), "bundle"]

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("ziglang") is None,
        reason="the compiler, ziglang, is not installed",
    ),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="pages are guarded with mprotect"),
    pytest.mark.skipif(not WIDTHS, reason="libjit has no variant for this machine"),
]


def _missing(variant: Variant) -> Set[str]:
    """What a variant requires and this processor lacks."""
    if not variant.requires:
        return variant.requires
    return variant.requires - {name for name, on in llvm.get_host_cpu_features().items() if on}


@pytest.fixture(scope="module", params=BUILDS)
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """What kernel_runner.py says of a build."""
    variant = WIDTHS.get(request.param, BASELINE)
    if missing := _missing(variant):
        pytest.skip(f"this processor lacks {', '.join(sorted(missing))}")
    folder = tmp_path_factory.mktemp(request.param)
    scalars = folder / "scalars.c"
    scalars.write_text(scalar_cases.loops(SCHEMAS), encoding="utf-8")
    # scalars.c includes the kernels that its loops are about.
    kernels = [file for file in SOURCE.glob("*.c") if file.stem != "elementwise_gen"]
    flags = CHECKED if request.param == "checked" else OPTIMISED
    return _run_jobs(_compile(folder, [scalars, *sorted(kernels)], variant, flags))


def _compile(folder: Path, sources: Sequence[Path], variant: Variant, flags: list[str]) -> Path:
    """A shared library of some sources and kernel_driver.c."""
    machine = f"-mcpu={read_targets()[variant.name].zig_cpu}"
    include = ["-I", str(ROOT / "include"), "-I", str(SOURCE)]
    cc = [sys.executable, "-m", "ziglang", "cc", "-fPIC", *FLAGS, *flags, machine, *include]

    def compile_one(source: Path) -> Path:
        object_file = folder / f"{source.stem}.o"
        _run([*cc, "-c", str(source), "-o", str(object_file)])
        return object_file

    driver = Path(__file__).with_name("kernel_driver.c")
    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compile_one, [*sources, driver]))
    library = folder / "kernels.so"
    _run([*cc, *ALONE, *map(str, objects), "-o", str(library)])
    return library


def _run_jobs(library: Path, *jobs: str) -> Report:
    command = [sys.executable, "-m", "tests.libjit.kernel_runner", str(library), *jobs]
    answer: Report = json.loads(_run(command))
    return answer


def _run(command: list[str]) -> str:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=ROOT.parent, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("mnemonic", KERNELS)
def test_every_kernel_has_cases(mnemonic: str) -> None:
    assert callable(cases_of(mnemonic))


def test_every_scalar_kernel_has_cases() -> None:
    known = {*scalar_cases.EXACT, *scalar_cases.ROUNDED, *scalar_cases.TO_ANOTHER_KIND, "convert"}
    assert known == set(SCALARS)


@pytest.mark.parametrize("job", JOBS)
def test_kernel(report: Report, job: str) -> None:
    failures = report[job]["failures"]
    assert not failures, "\n".join(failures[:20])
    assert report[job]["calls"] > 0


def test_kernels_that_know_of_vectors_do_without(tmp_path: Path) -> None:
    """As on every target that has no vector instructions."""
    sources = [
        SOURCE / f"{name}.c"
        for name in (
            "conv",
            "dot_attention",
            "matmul",
            "norm",
            "pool",
            "reduce",
            "strassen",
            "tile",
            "winograd",
        )
    ]
    jobs = ["cpu_conv", "cpu_depthwise_conv", "cpu_matmul", "softmax", "max_pool", "avg_pool"]
    jobs += ["cpu_attention", "cpu_strassen", "cpu_winograd", "reduce_add", "reduce_max"]
    jobs += ["cpu_byte_winograd"]
    answer = _run_jobs(_compile(tmp_path, sources, BASELINE, SCALAR), *jobs)
    for job in jobs:
        assert answer[job]["calls"] > 0
        assert not answer[job]["failures"], job


@pytest.mark.parametrize("name", DOTS)
def test_products_in_one_instruction(name: str, tmp_path: Path) -> None:
    """Those that differ between variants of one vector width."""
    if missing := _missing(DOTS[name]):
        pytest.skip(f"this processor lacks {', '.join(sorted(missing))}")
    sources = [SOURCE / f"{name}.c" for name in ("conv", "matmul", "tile")]
    features = {name for name, on in llvm.get_host_cpu_features().items() if on}
    kinds = ["i8", "u8", *(["bf16"] if DOTS[name].bf16_requires <= features else [])]
    jobs = [f"{kernel} {kind}" for kernel in ("cpu_conv", "cpu_matmul") for kind in kinds]
    answer = _run_jobs(_compile(tmp_path, sources, DOTS[name], OPTIMISED), *jobs)
    for job in jobs:
        assert answer[job]["calls"] > 0
        assert not answer[job]["failures"], (job, answer[job]["failures"][:5])


def test_without_floating_point(tmp_path: Path) -> None:
    """As on a Cortex-M0, which has no products of 64 bits either."""
    mnemonics = [
        "scale_rounded",
        "saturate",
        "subtract_offset",
        "uncontracted_mul",
        "add",
        "sub",
        "mul",
        "div",
        "max",
    ]
    mnemonics += ["min"]
    scalars = tmp_path / "scalars.c"
    scalars.write_text(scalar_cases.loops(SCHEMAS, mnemonics), encoding="utf-8")
    lacking = ("F32_IN_HARDWARE", "F64_IN_HARDWARE", "LONG_PRODUCT_IN_HARDWARE")
    flags = [*OPTIMISED, *(f"-D{name}=0" for name in lacking)]
    library = _compile(tmp_path, [scalars, SOURCE / "tile.c"], BASELINE, flags)
    jobs = [f"scalar {mnemonic}" for mnemonic in mnemonics]
    answer = _run_jobs(library, *jobs)
    for job in jobs:
        assert answer[job]["calls"] > 0
        assert not answer[job]["failures"], (job, answer[job]["failures"][:5])


def test_small_kernels(tmp_path: Path) -> None:
    """Those that have less code where that counts more than speed."""
    jobs = ["max_pool", "avg_pool", "softmax", "log_softmax", "transpose", "broadcast"]
    sources = [SOURCE / f"{name}.c" for name in ("norm", "pool", "shape", "tile")]
    small = [*OPTIMISED, "-DLIBJIT_SMALL=true"]
    answer = _run_jobs(_compile(tmp_path, sources, BASELINE, small), *jobs)
    for job in jobs:
        assert answer[job]["calls"] > 0
        assert not answer[job]["failures"], (job, answer[job]["failures"][:5])


@dataclass(frozen=True)
class Fault:
    """A mistake put into a kernel, and what is then said of it."""

    file: str
    right: str
    wrong: str
    job: str
    said: str
    checked: bool = False


FAULTS = {
    "reads past its input": Fault(
        "gather.c", "extent > 0 ? input[start + k] : 0", "input[start + k + 1]", "gather", "SIGSEGV"
    ),
    "reads before its input": Fault(
        "gather.c", "extent > 0 ? input[start + k] : 0", "input[start + k - 1]", "gather", "SIGSEGV"
    ),
    "lets an index out of the range": Fault(
        "gather.c", "index = index < extent ? index : extent - 1", "index = index", "gather", "SIGSEGV"
    ),
    "leaves an element out": Fault(
        "gather.c", "dim_t k = 0; k < inner; k++) result[", "dim_t k = o; k < inner; k++) result[", "gather",
        "elements are wrong",
    ),
    "is wrong in place": Fault(
        "norm.c", "(last, shift), rest", "(*(const V *)(input + n - W), shift), rest", "softmax", "in place",
    ),
    "is wrong about where a tile lies": Fault(
        "conv.c", ".image_row = n * height * width,", ".image_row = n * height * width + 1,",
        "cpu_depthwise_conv", "of the epilogue",
    ),
    "asks who computes a unit": Fault(
        "conv.c", "unit / blocks % slabs * slab", "(unit - first_unit) / blocks % slabs * slab",
        "cpu_depthwise_conv", "in parts",
    ),
    "calls an inner loop that nobody wrote": Fault(
        "conv.c", ".left = pads->at[1],", ".left = pads->at[3],", "cpu_conv", "SIGSEGV"
    ),
    "shifts too far": Fault(
        "bundle.c", "crc ^= data[i];", "crc ^= data[i] << (size > 64 ? 32 : 0);", "bundle", "SIG", checked=True
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_kernel_that_is_found_out(name: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    text = (SOURCE / fault.file).read_text(encoding="utf-8")
    assert text.count(fault.right) == 1
    mutant = tmp_path / fault.file
    mutant.write_text(text.replace(fault.right, fault.wrong), encoding="utf-8")
    flags = CHECKED if fault.checked else ["-O0", "-fno-sanitize=all"]
    sources = [mutant, SOURCE / "tile.c", SOURCE / "matmul.c"]
    answer = _run_jobs(_compile(tmp_path, sources, BASELINE, flags), fault.job)
    assert any(fault.said in failure for failure in answer[fault.job]["failures"])
