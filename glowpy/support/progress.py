"""Progress reports of long work.

Whoever works calls `report`; whoever wants to know wraps the work in `reporting`. In between nothing is handed on: any
stage, in any layer, can report, and costs next to nothing where nobody listens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["Progress", "noting_stops", "report", "reporting"]

Progress = Callable[[str, int, int], None]
"""Takes the name of a stage, how much of it is done, and how much there is to do: 0 where that is not known."""

_listener: ContextVar[Progress | None] = ContextVar("progress", default=None)


@contextmanager
def reporting(progress: Progress) -> Iterator[None]:
    """Calls `progress(stage, done, total)` for all that this thread imports, compiles or bundles inside the `with`.

    Stages are `import` (nodes), the names of passes and stages in `PassContext.times`, `compile` (functions that
    become machine code; begins with those that the cache has), `weights` (large constants that are packed),
    `kernels`, `recall`, and `inputs` (that a network is profiled with). The callback is called in the thread that
    works, and what it raises ends the work.

    ```python
    with glowpy.reporting(lambda stage, done, total: print(stage, done, total)):
        session = glowpy.InferenceSession("model.onnx")
    ```
    """
    token = _listener.set(progress)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def noting_stops() -> Iterator[list[BaseException]]:
    """Yields what the callback of the innermost `reporting` raises inside the `with`, which ends the work."""
    stops: list[BaseException] = []
    progress = _listener.get()
    if progress is None:
        yield stops
        return

    def noted(stage: str, done: int, total: int) -> None:
        try:
            progress(stage, done, total)
        except BaseException as error:
            stops.append(error)
            raise

    with reporting(noted):
        yield stops


def report(stage: str, done: int = 0, total: int = 0) -> None:
    """Says to the innermost `reporting` that `done` of `total` steps of a stage are done."""
    progress = _listener.get()
    if progress is not None:
        progress(stage, done, total)
