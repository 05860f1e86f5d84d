"""Forks while other threads hold locks, compile and run: the child waits for none of them."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from glowpy import InferenceSession, UserError, reporting
from glowpy.llvm import machine
from glowpy.recipe import Compilation
from glowpy.session.by_rounds import ByRounds
from glowpy.session.compiled import Compiled
from glowpy.support import forks
from glowpy.support.forks import Lock, tell_in_child

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "register_at_fork"), reason="there are no forks"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # Python 3.12: there are threads
]

SUM = '<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[n] y) { y = Add(x, x) }'
KEPT = """<ir_version: 8, opset_import: ["": 17]>
g (float[2] x, float[2] s) => (float[2] y, float[2] t) { t = Add(x, s) y = Mul(t, t) }"""

ROUNDS = """<ir_version: 10, opset_import: ["": 17]>
g (bool c, float[N] a, float[2] x) => (float[R, N] s, float[2] y) { y = Add(x, x)
  t, s = Loop (, c, a) <body = h (int64 i, bool k, float[P] p) => (bool k2, float[P] q, float[P] sc) {
    q = Add(p, p) sc = Identity(p) m = ReduceMax <keepdims = 0> (q)
    e = Constant <value_float = 3.5> () k2 = Less(m, e) }> }"""


def child(work: Callable[[], bool]) -> bool:
    """What `work` says in the child of a fork, where a minute is the limit."""
    pid = os.fork()
    if not pid:
        threading.Timer(60, os._exit, [7]).start()
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitpid(pid, 0)[1] == 0


@contextmanager
def elsewhere(work: Callable[[Callable[[], None]], None]) -> Iterator[Callable[[], None]]:
    """Has `work` done by another thread, up to where it calls its argument; yields what lets it go on."""
    arrived, go = threading.Event(), threading.Event()

    def pause() -> None:
        arrived.set()
        go.wait(60)

    thread = threading.Thread(target=work, args=[pause])
    thread.start()
    assert arrived.wait(60)
    try:
        yield go.set
    finally:
        go.set()
        thread.join()


class _Owner:
    value = 1

    def forked(self) -> None:
        self.value += 1


@pytest.mark.parametrize("is_brief", [False, True])
def test_a_lock_that_another_thread_holds_is_open_in_the_child(
    is_brief: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glowpy.support.forks._PATIENCE", 0.1)
    lock, owner = Lock(is_brief=is_brief), _Owner()
    tell_in_child(owner)

    def hold(pause: Callable[[], None]) -> None:
        with lock:
            pause()

    def take() -> bool:
        with lock, lock:
            return owner.value == 2

    with elsewhere(hold):
        assert child(take)
    with lock:
        assert child(take)  # the thread that forks has it in the child as well
    with lock:
        assert owner.value == 1


def test_a_fork_waits_for_a_brief_lock_and_comes_before_others() -> None:
    lock, left = Lock(), []

    def hold(pause: Callable[[], None]) -> None:
        with lock:
            pause()
            left.append(1)
        for _ in range(10_000):  # without a place for the fork in between
            with lock:
                left.append(1)

    with elsewhere(hold) as go:
        threading.Timer(0.05, go).start()
        assert child(lambda: 1 <= len(left) < 10_000)
    assert len(left) == 10_001


def test_llvm_may_be_in_use() -> None:
    assert isinstance(machine._LOCK, Lock)


def test_a_cached_property_may_be_being_computed() -> None:
    """As stages of a compilation are, which holds a lock of the class before Python 3.12."""
    names = [name for name, one in vars(Compilation).items() if isinstance(one, cached_property)]
    assert names
    locks = [lock for name in names if (lock := getattr(vars(Compilation)[name], "lock", None))]

    def hold(pause: Callable[[], None]) -> None:
        for lock in locks:
            lock.acquire()
        pause()
        for lock in locks:
            lock.release()

    def take() -> bool:
        now = [getattr(vars(Compilation)[name], "lock", None) for name in names]
        return all(lock.acquire(timeout=10) for lock in now if lock is not None)

    with elsewhere(hold):
        assert child(take)


def _right(session: InferenceSession, extent: int) -> bool:
    x = np.arange(extent, dtype=np.float32)
    return bool((session.run(None, {"x": x})[0] == x + x).all())


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize("stage", ["import", "memory"])
def test_the_child_compiles_what_another_thread_was_compiling(
    cache_folder: Path, backend: str, stage: str
) -> None:
    del cache_folder
    model = onnx.parser.parse_model(SUM)
    session = InferenceSession(model, backend=backend)

    def compile(pause: Callable[[], None]) -> None:
        paused: list[str] = []

        def progress(name: str, _done: int, _total: int) -> None:
            if name == stage and not paused:
                paused.append(name)
                pause()

        with reporting(progress):
            assert _right(session, 5)

    with elsewhere(compile):
        assert child(lambda: _right(session, 5) and _right(session, 7))
    assert _right(session, 5)


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_a_session_may_be_going_over_to_rounds(cache_folder: Path, backend: str) -> None:
    """Its parts are compiled then, and no lock is held that a fork waits for."""
    del cache_folder
    session = InferenceSession(onnx.parser.parse_model(ROUNDS), backend=backend)
    feeds = {"c": np.array(True), "a": np.ones(3, np.float32), "x": np.ones(2, np.float32)}

    def runner() -> type:
        return type(session._runner)

    def right() -> bool:
        stacked, sum = session.run(None, feeds)
        return bool((stacked == [[1] * 3, [2] * 3]).all() and (sum == 2).all())

    def go_over(pause: Callable[[], None]) -> None:
        paused: list[str] = []

        def progress(name: str, _done: int, _total: int) -> None:
            if name == "memory" and not paused:
                paused.append(name)
                pause()

        with reporting(progress):
            assert right()

    with elsewhere(go_over):
        assert runner() is Compiled
        locks = [lock for known in forks._locks.values() if (lock := known()) is not None]
        for lock in locks:
            if lock._is_brief:
                assert next(lock.taking(0))
                lock.give()
        assert child(right)
    assert right()
    assert runner() is ByRounds


class _Pausing:
    def __init__(self) -> None:
        self.pause: Callable[[], None] = lambda: None

    def before(self, inst: object, operands: Mapping[str, object]) -> None:
        del inst, operands
        self.pause()

    def after(self, inst: object, operands: Mapping[str, object]) -> None: ...


def test_what_a_session_keeps_is_not_known_in_the_child_of_a_run() -> None:
    observer = _Pausing()
    model = onnx.parser.parse_model(KEPT)
    session = InferenceSession(model, backend="interpreter", observer=observer, state={"s": "t"})
    x = np.array([1, 2], np.float32)

    def run(pause: Callable[[], None]) -> None:
        observer.pause = pause
        session.run(None, {"x": x})

    def go_on() -> bool:
        observer.pause = lambda: None
        for ask in (lambda: session.run(None, {"x": x}), session.get_state):
            with suppress(UserError):
                ask()
                return False
        session.reset_state()
        return bool((session.run(None, {"x": x})[0] == x * x).all())

    with elsewhere(run):
        assert child(go_on)
    observer.pause = lambda: None
    assert (session.run(None, {"x": x})[0] == 4 * x * x).all()


IMPORTING = """
import faulthandler, os, sys, threading
import glowpy

def open_one():
    return glowpy.InferenceSession(MODEL, backend="interpreter")

MODEL = bytes.fromhex(sys.argv[1])
thread = threading.Thread(target=open_one)
thread.start()
while not any(getattr(m.__spec__, "_initializing", False) for n, m in list(sys.modules.items())
              if n.startswith("glowpy.session.session")):
    assert thread.is_alive(), "it is too late"
pid = os.fork()
if not pid:
    faulthandler.dump_traceback_later(60, exit=True)
    open_one()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
thread.join()
print("done")
"""


def test_another_thread_may_be_importing_glowpy() -> None:
    """Its modules are imported when they are first needed, with a lock for each."""
    model = onnx.parser.parse_model(SUM).SerializeToString().hex()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IMPORTING, model],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


LATE = """
import faulthandler, importlib.util, os, sys, threading
import glowpy.support.forks

begun, go_on = threading.Event(), threading.Event()

class Importer:
    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if name == "late" else None

    def create_module(self, spec):
        self.wait("creation")

    def exec_module(self, module):
        module.half = 21
        self.wait("code")
        module.answer = 2 * module.half

    def wait(self, where):
        if where == sys.argv[1] and threading.current_thread() is thread:
            begun.set()
            go_on.wait()

sys.meta_path.insert(0, Importer())
thread = threading.Thread(target=__import__, args=("late",))
thread.start()
begun.wait()
pid = os.fork()
if not pid:
    faulthandler.dump_traceback_later(30, exit=True)
    import late
    os._exit(late.answer)
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
go_on.set()
thread.join()
import late
print(status, late.answer)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
@pytest.mark.parametrize("where", ["creation", "code"])
def test_a_child_imports_what_a_thread_was_importing(where: str) -> None:
    """The thread holds the lock of the name while there is no module yet, or has run half of its code."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LATE, where],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "42 42\n", "")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
def test_ctrl_c_leaves_no_lock_behind() -> None:
    """It may come between any two steps of Python, within what takes a lock and what gives it back as well."""
    lock = Lock()

    def take(seconds: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        while True:
            with lock, lock:
                pass

    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for microseconds in range(1, 400):
            with pytest.raises(KeyboardInterrupt):
                take(microseconds * 1e-6)
            assert not lock.is_own
    finally:
        signal.signal(signal.SIGALRM, previous)


INTERRUPTED = """
import os, signal, sys, threading, time
from glowpy.support import forks

held, late, foreign = forks.Lock(), forks.Lock(), [threading.RLock(), threading.RLock()]
for lock in foreign:
    forks.wait_for(lock)
arrived, go = threading.Event(), threading.Event()

def hold():
    with FIRST:
        arrived.set()
        go.wait(60)

def interrupt(*_):
    go.set()
    raise KeyboardInterrupt

def are_open():
    free = []
    def look():
        for lock in [held, late]:
            with lock:
                free.append(lock)
        for lock in [*foreign, forks._forking]:
            if lock.acquire(timeout=20):
                free.append(lock)
                lock.release()
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(30)
    return len(free) == 5 and not forks._pending

thread = threading.Thread(target=hold)
signal.signal(signal.SIGALRM, interrupt)
thread.start()
arrived.wait()
signal.setitimer(signal.ITIMER_REAL, 0.3)
pid = os.fork()
if not pid:
    os._exit(0 if FIRST in foreign or are_open() else 1)
status = os.waitpid(pid, 0)[1]
thread.join()
print(status, go.is_set(), are_open(), flush=True)
pid = os.fork()
if not pid:
    os._exit(0 if are_open() else 1)
print(os.waitpid(pid, 0)[1], flush=True)
os._exit(0)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals")
@pytest.mark.parametrize("first", ["held", "foreign[0]", "foreign[1]"])
def test_ctrl_c_while_a_fork_waits(first: str) -> None:
    """Python prints it and forks: what had been taken until then is given back on both sides, and nothing else."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", INTERRUPTED.replace("FIRST", first)],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert (done.returncode, done.stdout) == (0, "0 True True\n0\n"), done.stderr
    assert "KeyboardInterrupt" in done.stderr
    assert "RuntimeError" not in done.stderr


class _Raising:
    """A lock whose release is interrupted at first, as one that is given back in Python may be."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def __enter__(self) -> None:
        self.log.append("enter")

    def __exit__(self, *_: object) -> None:
        self.log.append("exit")
        raise KeyboardInterrupt


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_cannot_be_given_back_keeps_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, foreign = Lock(), _Raising()
    monkeypatch.setattr(forks, "_foreign", [foreign])
    assert child(lambda: True)
    assert (foreign.log, forks._pending, lock.is_own) == (["enter", "exit"], [], False)
