"""Ctrl-C, and what becomes of other processes when ours is killed: in the middle of calls that Python waits for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are sent as on Unix")

PATIENCE = 2.0
"""Seconds for what takes half a second where the tests have the processor for themselves; the work takes far more."""

SLOW = """
import os, sys
from glowpy.cli.interrupt import run_to_end
from glowpy.llvm import objects
from glowpy.llvm.machine import Machine, host_cpu, host_triple
from glowpy.support.progress import reporting

N = 12000  # LLVM takes ten seconds for so many values that are alive at the same time
loads = [f"%v{i} = load volatile i64, ptr %p" for i in range(N)]
products = [f"%s{i} = mul i64 {f'%s{i - 1}' if i > 1 else '%v0'}, %v{N - i}" for i in range(1, N)]
body = chr(10).join([*loads, *products])

def text(number):
    return f"define i64 @f{number}(ptr %p) {{ {body} ret i64 %s{N - 1} }}"

def tell(stage, done, total):
    print(stage, done, total, flush=True)
"""

COMPILE = f"""{SLOW}
def work():
    with reporting(tell):
        objects.compile_objects([text(0)], Machine(host_triple(), host_cpu(), ""), [], use_cache=False)
run_to_end(lambda: work() or 0)
"""

WORKERS = f"""{SLOW}
objects.usable_cores = lambda: 3
start = objects.subprocess.Popen

def popen(*args, **options):
    process = start(*args, **options)
    print(process.pid, flush=True)
    return process

objects.subprocess.Popen = popen
texts = [text(number) for number in range(12)]
objects.compile_objects(texts, Machine(host_triple(), host_cpu(), ""), [], use_cache=False)
"""

ONE_CALL = """
import numpy as np
from glowpy.cli.interrupt import run_to_end
print("ready", flush=True)
run_to_end(lambda: int(np.linalg.svd(np.random.default_rng(0).random((4000, 4000)))[1][0]))
"""

CLEANING = """
import sys, tempfile, time
from glowpy.cli.interrupt import run_to_end

def work():
    with tempfile.TemporaryDirectory(dir=sys.argv[1]):
        try:
            print("ready", flush=True)
            time.sleep(60)
        finally:
            time.sleep(0.6)  # longer than the watcher waits

run_to_end(lambda: work() or 0)
"""


STUBBORN = """
import numpy as np
from glowpy.cli.interrupt import run_to_end

def work():
    matrix = np.random.default_rng(0).random((4000, 4000))
    try:
        print("ready", flush=True)
        while True:
            pass
    except KeyboardInterrupt:
        print("heard", flush=True)
        np.linalg.svd(matrix)

run_to_end(lambda: work() or 0)
"""


@pytest.fixture(autouse=True)
def _interrupts_are_heard() -> Iterator[None]:
    """A shell lets what it starts in the background ignore them, and so would the processes of the tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@contextmanager
def started(program: str, *argv: str) -> Iterator[subprocess.Popen[str]]:
    """A process that ends with the `with`."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", program, *argv]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # its threads wait by turning
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize(
    ("program", "first"),
    [(COMPILE, "compile 0 1"), (ONE_CALL, "ready")],
    ids=["LLVM", "one call of numpy's"],
)
def test_an_interrupted_command_ends_in_the_middle_of_a_call(program: str, first: str) -> None:
    with started(program) as process:
        assert line_of(process) == first
        time.sleep(0.2)
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert time.monotonic() - start < PATIENCE
    assert (process.returncode, out, err) == (130, "", "interrupted\n")


def test_an_interrupted_command_deletes_its_temporary_files(tmp_path: Path) -> None:
    with started(CLEANING, str(tmp_path)) as process:
        assert line_of(process) == "ready"
        assert list(tmp_path.iterdir())
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "interrupted\n")
    assert not list(tmp_path.iterdir())


def test_a_second_interrupt_ends_what_takes_long_after_the_first() -> None:
    with started(STUBBORN) as process:
        assert line_of(process) == "ready"
        process.send_signal(signal.SIGINT)
        assert line_of(process) == "heard"
        time.sleep(0.5)
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert time.monotonic() - start < PATIENCE
    assert (process.returncode, err) == (130, "interrupted\n")


def test_the_command_is_interrupted_while_it_is_imported() -> None:
    program = (
        "import sys, time, types\n"
        "class Slow:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'glowpy.cli.main':\n"
        "            print('importing', flush=True)\n"
        "            time.sleep(60)\n"
        "sys.meta_path.insert(0, Slow())\n"
        "from glowpy.__main__ import main\n"
        "main()"
    )
    with started(program) as process:
        assert line_of(process) == "importing"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "interrupted\n")


def is_alive(pid: int) -> bool:
    """Whether there is such a process; one that has ended and that nobody asked for is none."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_processes_that_compile_end_with_theirs(number: signal.Signals) -> None:
    """They went on for as long as LLVM took for what they had."""
    with started(WORKERS) as process:
        workers = [int(line_of(process)) for _ in range(2)]
        time.sleep(1.0)  # they have read what to compile
        assert all(map(is_alive, workers))
        process.send_signal(number)
        deadline = time.monotonic() + PATIENCE
        while any(map(is_alive, workers)) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not any(map(is_alive, workers))


def test_the_compiler_of_the_kernels_ends_with_whoever_reads_what_it_says(tmp_path: Path) -> None:
    command = ["libjit/compile.py", "--host", "--directory", str(tmp_path)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, env=environment, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        while not list(tmp_path.glob("libjit-*")):
            time.sleep(0.02)
        process.stdout.close()
        try:
            assert process.wait(PATIENCE) == 1
        finally:
            process.kill()
