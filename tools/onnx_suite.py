"""Runs onnx's own suite of backend tests with glowpy behind onnx's runner, and keeps the list of what does not pass.

```sh
python -m tools.onnx_suite                      # counts, for both backends
python -m tools.onnx_suite --renew              # writes tests/onnx/not_passed.txt anew
python -m tools.onnx_suite --backend cpu -k gru # some cases, with what is wrong with each
```
"""

from __future__ import annotations

import argparse
import atexit
import os
import re
import sys
import tempfile
import time
import unittest
import warnings
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np
from onnx.backend.test.runner import Runner

from glowpy.backend import Backend
from glowpy.backends.cpu.backend import CpuBackend
from glowpy.backends.interpreter.backend import InterpreterBackend
from glowpy.onnx_backend import GlowpyBackend
from glowpy.support.errors import UserError

__all__ = ["BACKENDS", "EXCUSES", "NOT_PASSED", "cases", "listed", "outcome"]

NOT_PASSED = Path(__file__).parents[1] / "tests" / "onnx" / "not_passed.txt"
"""The list: case, backend and reason, with tabs between."""

EXCUSES: Mapping[str, str] = {
    "test_bernoulli|test_training_dropout": "expects the random numbers of numpy's generator",
    "test_attention_4d_causal_fp16": "half precision at every step: off by one unit in the last place",
    "test_loop16_seq_none": "onnx's runner cannot compare numbers without dimensions in a list",
}
"""Why cases may give other numbers than expected, by the beginnings of their names."""

HEADER = "# Cases of onnx's suite that do not pass, by backend. `python -m tools.onnx_suite --renew` writes this.\n"


class _Cpu(GlowpyBackend):
    """One backend object for all cases. They share functions of machine code through the cache."""

    backend: ClassVar[str | Backend] = CpuBackend()


class _Interpreter(GlowpyBackend):
    backend: ClassVar[str | Backend] = InterpreterBackend()


BACKENDS: Mapping[str, type[GlowpyBackend]] = {"cpu": _Cpu, "interpreter": _Interpreter}
"""The classes that onnx's runner gets, by backend."""


@cache
def _runner() -> Runner:
    """The runner with all cases. Those of whole networks, which come without weights, write to a folder for that."""
    folder = tempfile.TemporaryDirectory(prefix="onnx-models-")
    atexit.register(folder.cleanup)
    os.environ["ONNX_MODELS"] = folder.name
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Runner(GlowpyBackend, __name__)


@cache
def cases() -> dict[str, unittest.TestCase]:
    """The cases of onnx's runner for the device CPU, by name."""
    tests: dict[str, unittest.TestCase] = {}
    for cls in _runner().test_cases.values():
        for name in unittest.defaultTestLoader.getTestCaseNames(cls):
            if name.endswith("_cpu"):
                tests[name.removesuffix("_cpu")] = cls(name)
    return tests


def outcome(backend: str, name: str) -> str:
    """How a case of onnx's runner ends: `passed`, or `refused: `, `differs: ` or `crashed: ` and the reason."""
    _runner().backend = BACKENDS[backend]
    try:
        with np.errstate(all="ignore"):
            cases()[name].debug()
    except unittest.SkipTest as error:
        return f"refused: {error}"
    except UserError as error:
        return f"refused: {_reason(error.diagnostics[0].message)}"
    except AssertionError as error:
        return f"differs: {_difference(name, error)}"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is on the list, or the test fails
        if isinstance(error, TypeError) and "Unable to compare" in str(error):
            return f"differs: {_difference(name, AssertionError(*error.args))}"
        return f"crashed: {type(error).__name__}: {_reason(str(error))}"
    return "passed"


def _difference(name: str, error: AssertionError) -> str:
    """Why a case may give other numbers; what the comparison says of one that may not."""
    reasons = [reason for pattern, reason in EXCUSES.items() if re.match(pattern, name)]
    return reasons[0] if reasons else _reason(str(error))


def _reason(text: str) -> str:
    """One line, in which nothing is of this case alone."""
    line = " ".join(text.split())
    line = re.sub(r"^%\w+: ", "", line)
    line = re.sub(r"'[^']*'", "'...'", line)
    line = re.sub(r" on [a-z0-9]+\[.*", "", line)
    return line[:110]


def listed() -> dict[tuple[str, str], str]:
    """The reasons on the list, by case and backend."""
    lines = NOT_PASSED.read_text("utf-8").splitlines() if NOT_PASSED.is_file() else []
    fields = (line.split("\t") for line in lines if line and not line.startswith("#"))
    return {(name, backend): reason for name, backend, reason in fields}


def main() -> int:
    """Returns 1 if a case crashed."""
    parser = argparse.ArgumentParser(prog="python -m tools.onnx_suite", description=__doc__)
    parser.add_argument("--renew", action="store_true", help=f"write {NOT_PASSED.name}")
    parser.add_argument("--backend", choices=[*BACKENDS], action="append")
    parser.add_argument("-k", dest="pattern", default="", help="only names with this pattern")
    options = parser.parse_args()
    names = [name for name in sorted(cases()) if re.search(options.pattern, name)]
    failed: dict[tuple[str, str], str] = {}
    run: set[tuple[str, str]] = set()
    for backend in options.backend or BACKENDS:
        start = time.perf_counter()
        outcomes = {(name, backend): outcome(backend, name) for name in names}
        failed |= {case: text for case, text in outcomes.items() if text != "passed"}
        run |= outcomes.keys()
        passed, seconds = list(outcomes.values()).count("passed"), time.perf_counter() - start
        sys.stdout.write(f"{backend}: {passed} of {len(names)} pass, {seconds:.0f} s\n")
    if options.renew:
        results_to_keep = {
            case: text for case, text in listed().items() if case not in run and case[0] in cases()
        }
        NOT_PASSED.write_text(HEADER + _lines(failed | results_to_keep), "utf-8")
    else:
        sys.stdout.write(_lines(failed))
    return int(any(text.startswith("crashed") for text in failed.values()))


def _lines(reasons: Mapping[tuple[str, str], str]) -> str:
    return "".join(
        f"{name}\t{backend}\t{reasons[name, backend]}\n" for name, backend in sorted(reasons)
    )


if __name__ == "__main__":
    raise SystemExit(main())
