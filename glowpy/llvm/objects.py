"""Compiles LLVM IR text to object files: through the cache, and several at the same time.

A text is linked with *libraries*, LLVM bitcode that holds the kernels it calls.
"""

from __future__ import annotations

import hashlib
import re
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass
from functools import cached_property, partial
from queue import SimpleQueue
from typing import IO

from glowpy.llvm.machine import (
    LLVM_VERSION,
    REFUSED,
    Compiler,
    Form,
    InvalidIRError,
    LoadedCode,
    Machine,
    declarations,
    header,
    own_lock,
    read_result,
    request,
    use_lock,
    worker_command,
)
from glowpy.llvm.stock import Stock
from glowpy.support.cache import Key, read, write_all
from glowpy.support.cores import usable_cores
from glowpy.support.errors import InternalError, ResourceError, UserError
from glowpy.support.forks import Lock, wait_for
from glowpy.support.progress import report

__all__ = ["compile_objects", "compile_whole", "load_objects"]

_PER_WORKER = 4
"""The number of texts that are worth the start of a process, which takes as long as to compile one of the larger."""

if sys.platform != "win32":
    import resource

use_lock(Lock())  # which the child of a fork finds open
wait_for(own_lock())

_STACK = re.compile(r"stack frame size \((\d+)\) exceeds limit \(\d+\) in function '([^']+)'")


def compile_objects(
    texts: Sequence[str],
    machine: Machine,
    libraries: Sequence[bytes],
    *,
    use_cache: bool,
    stock: Stock | None = None,
) -> list[bytes]:
    """The object file of each text, from the stock or the cache where it is there.

    The others are compiled in the order given, by this process and others, as many as there are cores at most: each
    takes the next text when it is done with one. Raises InternalError for texts that LLVM refuses.
    """
    if stock is not None:
        ready = {text: code for text in texts if (code := stock.find(text)) is not None}
        others = [text for text in texts if text not in ready]
        rest = compile_objects(others, machine, libraries, use_cache=use_cache)
        ready |= zip(others, rest, strict=True)
        return [ready[text] for text in texts]
    digests = [hashlib.sha256(library).digest() for library in libraries]
    where: list[str | bytes] = [*map(str, astuple(machine)), LLVM_VERSION, *digests]
    keys = [Key.of("code", text, *where) for text in texts]
    objects = {key: code for key in keys if use_cache and (code := read(key)) is not None}
    missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in objects}
    cached, total = len(objects), len(objects) + len(missing)
    report("compile", cached, total)
    if missing:
        waiting = list(missing.values())
        tell = partial(_tell, cached, total)
        compiled = dict(zip(missing, _compile(waiting, machine, libraries, tell), strict=True))
        if use_cache:
            write_all(compiled)
        objects |= compiled
    return [objects[key] for key in keys]


def _tell(cached: int, total: int, compiled: int) -> None:
    report("compile", cached + compiled, total)


def _compile(
    texts: Sequence[str], machine: Machine, libraries: Sequence[bytes], tell: Callable[[int], None]
) -> list[bytes]:
    """The object files of all texts. Calls `tell` with the number of those that are done after each.

    An exception, such as that of Ctrl-C, ends the processes at once. LLVM in this process cannot be ended: it runs in a
    thread, which goes on with the text that it has while the exception takes its course. Where it finds no memory, it
    ends the process: one whose memory is limited has others compile.
    """
    needed = declarations(texts)
    apart = bool(sys.executable) and _is_limited()
    most = min(usable_cores(), len(texts) // _PER_WORKER) if sys.executable else 0
    others = max(most, 1) if apart else most - 1
    waiting = deque(enumerate(texts))
    results: SimpleQueue[tuple[int, bytes] | BaseException] = SimpleQueue()

    def work(compile_text: Callable[[str], bytes]) -> None:
        while True:
            try:
                index, text = waiting.popleft()
            except IndexError:
                return
            try:
                results.put((index, compile_text(text)))
            except BaseException as error:  # noqa: BLE001 - raised where the results are taken
                results.put(error)
                return

    with ExitStack() as stack:
        pool = ThreadPoolExecutor(max(others, 0) + 1)
        stack.callback(pool.shutdown, wait=False)
        for _ in range(others):
            worker = stack.enter_context(_worker(machine, libraries, "object_code", needed))
            pool.submit(work, worker.compile)
        stack.callback(waiting.clear)
        if not apart:
            pool.submit(work, _Here(machine, libraries, needed).compile)
        objects: dict[int, bytes] = {}
        while len(objects) < len(texts):
            result = results.get()
            if isinstance(result, BaseException):
                raise result
            objects[result[0]] = result[1]
            tell(len(objects))
    return [objects[index] for index in range(len(texts))]


def _is_limited() -> bool:
    """Whether this process may have less memory than there is."""
    if sys.platform == "win32":
        return False
    kinds = (resource.RLIMIT_AS, resource.RLIMIT_DATA)
    return any(resource.getrlimit(kind)[0] != resource.RLIM_INFINITY for kind in kinds)


@dataclass
class _Here:
    """Compiles in this process."""

    machine: Machine
    libraries: Sequence[bytes]
    needed: Sequence[str]

    @cached_property
    def _compiler(self) -> Compiler:
        return Compiler(self.machine, self.libraries, self.needed)

    def compile(self, text: str) -> bytes:
        """Compiles a text to an object file. Raises InternalError where LLVM refuses it."""
        try:
            return self._compiler.object_code(text)
        except InvalidIRError as error:
            raise InternalError(f"LLVM refuses generated code: {error}") from error


@dataclass
class _Worker:
    """A process that compiles one text after the other."""

    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    header: bytes

    def compile(self, text: str) -> bytes:
        """Compiles a text to an object file. Raises InternalError where LLVM refuses it."""
        requests, results = self.process.stdin, self.process.stdout
        if requests is None or results is None:
            raise InternalError("a process was started without pipes")
        try:
            requests.write(self.header + request(text))
            requests.flush()
            result = read_result(results)
        except BrokenPipeError:
            result = None
        self.header = b""
        if result is None:
            raise self._failure(self.process.wait())
        return result

    def _failure(self, status: int) -> UserError | InternalError:
        """Why a process has ended with this exit status, without a result."""
        messages = self.messages().strip()
        if status == -signal.SIGKILL or "out of memory" in messages or "bad_alloc" in messages:
            return ResourceError("there is not enough memory for a process that compiles")
        if status in (REFUSED, -signal.SIGABRT, -signal.SIGSEGV):
            return InternalError(f"LLVM refuses generated code: {messages}")
        return UserError(
            f"expected a process that compiles, got one that ends with {status}: {messages.splitlines()[-1:]}",
            note=f"'{sys.executable}' is started, and has to be a Python that finds llvmlite's own requirements",
        )

    def messages(self) -> str:
        """Returns the messages that the process has written to its standard error."""
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")


@contextmanager
def _worker(
    machine: Machine, libraries: Sequence[bytes], form: Form, needed: Sequence[str]
) -> Iterator[_Worker]:
    """A process that ends with the `with`."""
    if not sys.executable:
        raise UserError("expected a Python to start another process with: sys.executable is empty")
    pipe = subprocess.PIPE
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(worker_command(), stdin=pipe, stdout=pipe, stderr=errors)
        try:
            yield _Worker(process, errors, header(machine, libraries, form, needed))
        finally:
            process.kill()
            process.communicate()


def compile_whole(
    text: str, machine: Machine, libraries: Sequence[bytes], form: Form
) -> tuple[bytes, dict[str, int]]:
    """One module as object code, assembly or LLVM IR; as `measured` with the stack frame of every function in bytes."""
    with _worker(machine, libraries, form, declarations([text])) as worker:
        result = worker.compile(text)
        return result, {name: int(size) for size, name in _STACK.findall(worker.messages())}


def load_objects(machine: Machine, objects: Sequence[bytes]) -> LoadedCode:
    """Object files in this process. Raises InternalError if they call functions that it does not have."""
    try:
        return LoadedCode(machine, list(objects))
    except InvalidIRError as error:
        raise InternalError(f"generated code cannot be loaded: {error}") from error
