"""Several threads compute a network: the same bits, no thread that is not asked for, none left behind."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from glowpy import CpuBackend, CpuOptions, InferenceSession, Module, UserError
from glowpy.backend import CompileOptions
from glowpy.backends.cpu import workers
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type, parse_type
from glowpy.engine import compile
from glowpy.ir.inst import Instruction
from glowpy.runtime.compiled import CompiledFunction, Observer
from glowpy.runtime.host_memory import aligned_array
from glowpy.support.cores import cpu_quota, usable_cores
from glowpy.support.symbolic import symbol

LINUX = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs Linux's /proc")
ROWS, COLUMNS = 700, 331


def network() -> Module:
    """A loop over all elements, one that broadcasts, a strided copy, and a large and a small constant."""
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type(f"f32[{ROWS}x{COLUMNS}]"))
    row = module.create_constant("row", np.linspace(-1, 1, COLUMNS, dtype=np.float32))
    whole = f.create_exp("exp", f.create_tanh("tanh", x))
    shifted = f.create_add("add", whole, row)
    both = f.create_concat("concat", [shifted, x], 1)
    for name, node in (("whole", whole), ("both", both)):
        f.create_save(name, node, module.create_placeholder(name, node.result.type))
    return module


@pytest.fixture(scope="module")
def x() -> Array:
    return np.random.default_rng(3).standard_normal((ROWS, COLUMNS), dtype=np.float32)


@pytest.fixture(scope="module")
def expected(x: Array) -> dict[str, Array]:
    return compile(network(), CpuBackend())({"x": x})


@pytest.fixture
def backend() -> Iterator[CpuBackend]:
    backend = CpuBackend(CpuOptions(threads=3))
    yield backend
    backend.close()


def thread_ids() -> set[str]:
    return set(os.listdir("/proc/self/task"))


def threads() -> int:
    return len(thread_ids())


def same(outputs: dict[str, Array], expected: dict[str, Array]) -> bool:
    return all(array.tobytes() == expected[name].tobytes() for name, array in outputs.items())


@pytest.mark.parametrize("depth", [3, 40, 600])
def test_rows_that_one_column_meets_are_shared(depth: int) -> None:
    """However many they are, which is known late: a row's sum depends on no other row, and on no thread."""
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(ElemKind.F32, (symbol("N", 0, 5000), depth)))
    rng = np.random.default_rng(depth)
    column = rng.standard_normal((depth, 1), dtype=np.float32)
    product = f.create_relu("relu", f.create_mat_mul("p", x, module.create_constant("w", column)))
    f.create_save("y", product, module.create_placeholder("y", product.result.type))
    rows = rng.standard_normal((5000, depth), dtype=np.float32)
    whole = np.maximum(rows.astype(np.float64) @ column, 0)
    sums: dict[int, Array] = {}
    for count in (1, 2, 3):
        backend = CpuBackend(CpuOptions(threads=count))
        function = compile(module, backend)
        for size in (5000, 4999, 129, 128, 127, 65, 64, 63, 1, 0):
            result = function({"x": rows[:size]})["y"]
            assert result.tobytes() == sums.setdefault(5000, result)[:size].tobytes(), (count, size)
        backend.close()
    np.testing.assert_allclose(sums[5000], whole, rtol=1e-5, atol=1e-4)


def test_eight_teams_at_once_compute_what_one_does(x: Array, expected: dict[str, Array]) -> None:
    """They have more threads than there are processors: whoever waits lets others work."""
    backends = [CpuBackend(CpuOptions(threads=2)) for _ in range(8)]
    functions = [compile(network(), backend) for backend in backends]

    def work(function: CompiledFunction) -> bool:
        return all(same(function({"x": x}), expected) for _ in range(20))

    with ThreadPoolExecutor(len(functions)) as pool:
        assert all(pool.map(work, functions))
    for backend in backends:
        backend.close()


@LINUX
def test_a_team_among_too_many_callers_computes_alone(
    x: Array, expected: dict[str, Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until they have been gone for some tasks: then its threads begin."""
    counter = ctypes.c_int(1000)
    monkeypatch.setattr(workers, "_callers", lambda process: counter)
    backend = CpuBackend(CpuOptions(threads=3))
    compiled, before = compile(network(), backend), threads()
    assert same(compiled({"x": x}), expected)
    assert threads() == before
    counter.value = 0
    for _ in range(20):
        assert same(compiled({"x": x}), expected)
    assert threads() == before + 2
    assert counter.value == 0
    backend.close()


def test_all_teams_of_a_process_share_one_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those as well that threads make at the same time, before there is one."""
    both = threading.Barrier(2)

    def aligned(size: int) -> Array:
        both.wait(60)
        return aligned_array(size)

    monkeypatch.setattr(workers, "_counters", {})
    monkeypatch.setattr(workers, "aligned_array", aligned)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(workers._callers, [1, 1])
    assert first is second
    assert ctypes.addressof(first) % 64 == 0


def test_one_thread_computes_what_the_interpreter_does(
    x: Array, expected: dict[str, Array]
) -> None:
    for name, array in compile(network(), "interpreter")({"x": x}).items():
        np.testing.assert_allclose(expected[name], array, rtol=1e-5, atol=1e-6)


@LINUX
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_any_number_of_threads_gives_the_same_bits(
    count: int, x: Array, expected: dict[str, Array]
) -> None:
    backend = CpuBackend(CpuOptions(threads=count))
    before = threads()
    compiled = compile(network(), backend)
    assert threads() == before
    for _ in range(5):
        assert same(compiled({"x": x}), expected)
    assert threads() == before + count - 1
    backend.close()
    assert threads() == before
    assert same(compiled({"x": x}), expected)
    del compiled, backend
    gc.collect()
    assert threads() == before


@LINUX
def test_a_network_without_units_begins_no_thread(backend: CpuBackend) -> None:
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[4x4]"))
    y = module.create_placeholder("y", parse_type("f32[4x4]"))
    f.create_save("save", f.create_softmax("softmax", x, 1), y)
    compiled, before = compile(module, backend), set(os.listdir("/proc/self/task"))
    compiled({"x": np.zeros((4, 4), np.float32)})
    assert (
        not set(os.listdir("/proc/self/task")) - before
    )  # those that have compiled may end meanwhile


@LINUX
@pytest.mark.skipif(usable_cores() < 2, reason="needs two processors")
def test_workers_keep_off_the_processor_of_the_caller(backend: CpuBackend, x: Array) -> None:
    """Also where it stays on the only processor that it had, and gets more: after 256 tasks at the latest."""
    compiled, before = compile(network(), backend), set(os.listdir("/proc/self/task"))
    usable = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(usable)})
        compiled({"x": x})
    finally:
        os.sched_setaffinity(0, usable)
    begun = set(os.listdir("/proc/self/task")) - before
    assert len(begun) == 2
    assert all(os.sched_getaffinity(int(thread)) == {min(usable)} for thread in begun)
    for _ in range(256):
        compiled({"x": x})
    processor = ctypes.CDLL(None).sched_getcpu
    for _ in range(100):
        here = processor()
        compiled({"x": x})
        if processor() == here:
            break
    else:
        pytest.fail("the caller never stays where it is")
    assert all(os.sched_getaffinity(int(thread)) == usable - {here} for thread in begun)


@LINUX
def test_a_session_ends_its_threads(x: Array, tmp_path: Path) -> None:
    model = onnx_model()
    with InferenceSession(model, threads=4) as session:
        before = thread_ids()
        (first,) = session.run(None, {"x": x})
        own = thread_ids() - before
        assert len(own) == 3
    assert own.isdisjoint(thread_ids())
    (alone,) = InferenceSession(model).run(None, {"x": x})
    assert first.tobytes() == alone.tobytes()
    (again,) = session.run(None, {"x": x})
    assert again.tobytes() == alone.tobytes()
    own = thread_ids() - before
    assert len(own) == 3
    del session
    gc.collect()
    assert own.isdisjoint(thread_ids())


def onnx_model() -> bytes:
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (ROWS, COLUMNS)) for name in "xy"
    ]
    node = helper.make_node("Tanh", ["x"], ["y"])
    graph = helper.make_graph([node], "tanh", ports[:1], ports[1:])
    return bytes(helper.make_model(graph).SerializeToString())


@LINUX
def test_an_exception_leaves_no_thread(x: Array) -> None:
    class Refusal(Observer):
        def before(self, inst: Instruction, operands: Mapping[str, Array]) -> None:
            raise ValueError(inst.name)

        def after(self, inst: Instruction, operands: Mapping[str, Array]) -> None:
            raise NotImplementedError

    backend = CpuBackend(CpuOptions(threads=2))
    before = threads()
    compiled = compile(network(), backend, CompileOptions(instrument=True))
    compiled.observer = Refusal()
    with pytest.raises(ValueError, match="tanh"):
        compiled({"x": x})
    backend.close()
    assert threads() == before


def test_several_callers_at_once(backend: CpuBackend, x: Array, expected: dict[str, Array]) -> None:
    compiled = compile(network(), backend)
    start = threading.Barrier(4)

    def work(_: int) -> bool:
        start.wait()
        return all(same(compiled({"x": x}), expected) for _ in range(10))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


def test_a_network_inside_a_network(
    backend: CpuBackend, x: Array, expected: dict[str, Array]
) -> None:
    inner = compile(network(), backend)
    outputs = []

    class Nested(Observer):
        def before(self, inst: Instruction, operands: Mapping[str, Array]) -> None:
            outputs.append(inner({"x": x}))

        def after(self, inst: Instruction, operands: Mapping[str, Array]) -> None:
            outputs.append(inner({"x": x}))

    outer = compile(network(), backend, CompileOptions(instrument=True))
    outer.observer = Nested()
    outer({"x": x})
    assert outputs
    assert all(same(result, expected) for result in outputs)


FORK = """
import os, sys, gc
import numpy as np
sys.path.insert(0, {root!r})
from tests.unit.backends.test_threads import *

data = np.random.default_rng(3).standard_normal((ROWS, COLUMNS), dtype=np.float32)
backend = CpuBackend(CpuOptions(threads=3))
compiled = compile(network(), backend)
expected = compiled({{"x": data}})
assert threads() >= 3
child = os.fork()
if not child:
    assert threads() == 1
    fine = same(compiled({{"x": data}}), expected) and threads() == 3
    backend.close()
    fine = fine and threads() == 1
    sys.exit(0 if fine else 7)
assert os.waitpid(child, 0)[1] == 0
assert same(compiled({{"x": data}}), expected)
grandchild = os.fork()
if not grandchild:
    sys.exit(0)  # having touched nothing
assert os.waitpid(grandchild, 0)[1] == 0
print("done")
"""


@LINUX
def test_the_child_of_a_fork_has_threads_of_its_own(tmp_path: Path) -> None:
    """And both processes end while the threads are there."""
    root = str(Path(__file__).parents[3])
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", FORK.format(root=root)],
        capture_output=True, text=True, check=False, env=environment,
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, "done"), done.stderr


def test_wrong_numbers_of_threads() -> None:
    for threads, text in ((-1, "-1"), (99_999_999, "99,999,999")):
        with pytest.raises(UserError, match=f"expected 0 to 1,024 threads, got {text}"):
            CpuBackend(CpuOptions(threads=threads))
    with pytest.raises(UserError, match="the interpreter backend has no option 'threads'"):
        InferenceSession(onnx_model(), backend="interpreter", threads=2)
    with pytest.raises(UserError, match="expected threads among the options of the backend"):
        InferenceSession(onnx_model(), backend=CpuBackend(), threads=2)


def test_kernels_are_the_same_for_every_number_of_threads(cache_folder: Path) -> None:
    compile(network(), CpuBackend())
    alone = set(cache_folder.iterdir())
    compile(network(), CpuBackend(CpuOptions(threads=2)))
    assert len(set(cache_folder.iterdir()) - alone) == 1  # what starts threads


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def test_quota_of_the_second_version(tmp_path: Path) -> None:
    membership = tmp_path / "cgroup"
    membership.write_text("0::/user/service\n")
    groups = tmp_path / "groups"
    write(groups / "user" / "service", cpu__max="max 100000")
    assert cpu_quota(membership, groups) == float("inf")
    write(groups / "user", cpu__max="250000 100000")
    assert cpu_quota(membership, groups) == 2.5
    write(groups, cpu__max="150000 100000")
    assert cpu_quota(membership, groups) == 1.5
    membership.write_bytes(b"0::/gr\xc3\xb6up\xff\n")
    assert cpu_quota(membership, groups) == 1.5, "a path is any bytes"


def test_quota_of_the_first_version(tmp_path: Path) -> None:
    membership = tmp_path / "cgroup"
    membership.write_text("5:memory:/docker/ab\n4:cpu,cpuacct:/docker/ab\n")
    groups = tmp_path / "groups"
    write(groups / "cpu,cpuacct", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    assert cpu_quota(membership, groups) == float("inf")
    write(groups / "cpu,cpuacct", cpu__cfs_quota_us="50000", cpu__cfs_period_us="100000")
    assert cpu_quota(membership, groups) == 0.5


def test_no_groups_no_quota(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path / "none", tmp_path) == float("inf")
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)
