"""What compiling needs comes back from the cache as it was raised."""

from __future__ import annotations

from pathlib import Path

import pytest

from glowpy.backend import Backend, CompileOptions
from glowpy.backend_choice import backend_with
from glowpy.importer.needs import RoundsError, ValueNeededError
from glowpy.session.kept_needs import NEEDS, KeptNeed, NeedError
from glowpy.support.errors import Diagnostic
from glowpy.support.loc import Loc
from glowpy.support.questions import Asked, Question, UndecidedError, UnequalError, UnorderedError
from glowpy.support.symbolic import ceil_div, greatest, symbol
from tests.unit.runtime.test_copying import DistantBackend

N, M = symbol("n", 2, 64, 16), symbol("m")
PLACE = Loc("net.onnx", node="loop/body", index=3, operator="Reshape")
QUESTION = Question("equal", 3 * N + M - 1, ceil_div(N * M, 4))
ASKED = (Asked(QUESTION, ("found_0", "found_1")),)
UNPLACED = UndecidedError("it is not known", [N], None, ASKED)
ERRORS: dict[str, NeedError] = {
    "unequal": UnequalError(N // 2, greatest(M, 8)),
    "unordered": UnorderedError(N - M, 5),
    "undecided": UNPLACED,
    "values": ValueNeededError("it depends", ["x", "y"], counts=["c"], asked=ASKED, loc=PLACE),
    "rounds": RoundsError("no bound", loc=PLACE, note="a remedy"),
}


@pytest.fixture
def backend(cache_folder: Path) -> Backend:
    del cache_folder
    return backend_with("cpu", None, low_memory=None)


def told(need: KeptNeed) -> NeedError:
    with pytest.raises(NEEDS) as caught:
        need.ask()
    assert isinstance(caught.value, RoundsError | UndecidedError | ValueNeededError)
    return caught.value


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_comes_back(name: str, backend: Backend) -> None:
    error = ERRORS[name]
    error.diagnostics = [*error.diagnostics, Diagnostic("and this", PLACE, "context", "note", "v")]
    KeptNeed("net", backend, CompileOptions()).keep(error)
    again = told(KeptNeed("net", backend, CompileOptions()))
    assert again.diagnostics == error.diagnostics
    if isinstance(error, RoundsError):
        assert isinstance(again, RoundsError)
    else:
        assert not isinstance(again, RoundsError)
        assert again.need == error.need
        assert isinstance(again, ValueNeededError) == isinstance(error, ValueNeededError)


def test_others_ask_for_themselves(backend: Backend) -> None:
    KeptNeed("net", backend, CompileOptions()).keep(UNPLACED)
    KeptNeed("other net", backend, CompileOptions()).ask()
    KeptNeed("net", backend, CompileOptions(cache=False)).ask()
    KeptNeed("net", backend_with("interpreter", None, low_memory=None), CompileOptions()).ask()


@pytest.mark.usefixtures("cache_folder")
def test_backends_with_one_key_ask_for_themselves() -> None:
    class Other(DistantBackend):
        name = "other"

    KeptNeed("net", DistantBackend(), CompileOptions()).keep(UNPLACED)
    told(KeptNeed("net", DistantBackend(), CompileOptions()))
    KeptNeed("net", Other(), CompileOptions()).ask()
    KeptNeed("net", DistantBackend(), CompileOptions(sanitize=True)).ask()
    KeptNeed("net", DistantBackend(), CompileOptions(instrument=True)).ask()


def test_what_is_told_is_not_kept_again(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    KeptNeed("net", backend, CompileOptions()).keep(UNPLACED)
    need = KeptNeed("net", backend, CompileOptions())
    error = told(need)
    monkeypatch.setattr("glowpy.session.kept_needs.write", lambda *_: pytest.fail("written again"))
    need.keep(error)
