"""One random network on several runtimes."""

from __future__ import annotations

import math
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from itertools import islice
from typing import TypeVar
from unittest.mock import patch

import numpy as np
import onnx
import onnxruntime

import glowpy
from glowpy import BundleOptions, CpuBackend, CpuOptions
from glowpy.backend import Backend, CompileOptions
from glowpy.backends.cpu.passes import pack_products
from glowpy.backends.cpu.strategy import bands
from glowpy.backends.cpu.strategy.ways import Chooser
from glowpy.bundling.load import load_bundle
from glowpy.core.tensor import Array
from glowpy.engine import compilation, context
from glowpy.graph.node import Node
from glowpy.recipe import Compilation
from glowpy.support.symbolic import Dim, symbol
from tools.patterns.judge import judged
from tools.patterns.network import Network

__all__ = [
    "DisagreementError",
    "Judgement",
    "RandomChooser",
    "backend_for",
    "compare",
    "eager",
    "run_trial",
]

W = TypeVar("W")
Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]
Judgement = tuple[Mapping[str, Array], Mapping[str, Array]] | None
_THREADS = " with threads"

_VARIANTS = ("x86-64-v2", "x86-64-v3", "x86-64-v4", "")
_MOST_WAYS = 40


class DisagreementError(Exception):
    """Two runtimes disagree, or one fails."""


class RandomChooser(Chooser):
    """Takes any of the algorithms there are for a product, and any of the first of its ways."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def choose(self, n: Node, ways: Iterable[W]) -> W:
        """One of the first ways of an algorithm, of which most are computed in one only."""
        del n
        algorithms: dict[type, list[W]] = {}
        for way in islice(ways, _MOST_WAYS):
            algorithms.setdefault(type(way), []).append(way)
        return self._rng.choice(self._rng.choice(list(algorithms.values())))


def _backend(seed: int) -> tuple[str, Callable[[int], CpuBackend]]:
    """Chooses a compiler's options: returns their description, and a function from a number of threads to a backend."""
    rng = random.Random(seed)
    cpu, exact, choice = rng.choice(_VARIANTS), rng.random() < 0.1, rng.random()

    def backend(threads: int) -> CpuBackend:
        compiler = CpuBackend(CpuOptions(cpu=cpu, exact=exact, threads=threads))
        if choice < 0.5:
            compiler.compiler.chooser = RandomChooser(seed)
        return compiler

    return (
        f"cpu={cpu or 'host'} exact={exact} chooser={'random' if choice < 0.5 else 'model'}",
        backend,
    )


def backend_for(seed: int) -> CpuBackend:
    """One of the ways in which the compiler may go about a network, with one thread."""
    return _backend(seed)[1](1)


def _compiled(
    model: onnx.ModelProto,
    dims: Mapping[str, Dim],
    backend: Backend,
    counts: Counter[str],
    *,
    verify: bool = False,
) -> Compilation:
    """A compilation up to its program; counts which passes did something and what instructions there are."""
    options = CompileOptions(verify_each=verify, cache=False)
    ctx = context(options)
    changed: Counter[str] = Counter()
    ctx.after_pass = lambda name, f, did: changed.update([name] * did)
    stages = compilation(glowpy.load(model, dims=dims), backend, options, ctx=ctx)
    with eager():
        program = stages.program
    counts.update(set(changed) | {name for name, count in ctx.applied.items() if count})
    counts.update({inst.SCHEMA.mnemonic for inst in program.ir.instructions})
    return stages


@contextmanager
def eager() -> Iterator[None]:
    """Has small networks computed in ways that are worth it for large ones: Strassen's algorithm, and bands of rows."""
    with (
        patch.object(pack_products, "WORTH_TRYING", math.inf),
        patch.multiple(bands, _LARGE=0, _PART=0.02),
    ):
        yield


def run_trial(
    network: Network, seed: int, counts: Counter[str], *, code: float, bundles: float = 0.0
) -> None:
    """Compiles and runs a network, and raises DisagreementError where something is wrong.

    What the passes made of it is interpreted; so often as `code` says there is machine code, too, and a bundle so
    often as `bundles` says.
    """
    model, rng = network.model(), random.Random(seed)
    words, backend = _backend(seed)
    extents = network.open_extents
    open_dims = {name: symbol(name, min(pair), max(pair) + 1) for name, pair in extents.items()}
    stages = _compiled(model, open_dims, backend(1), counts, verify=rng.random() < 0.3)
    passes = glowpy.InterpreterBackend().function(stages.program)
    runs: dict[str, Run] = {f"passes for {words}": passes}
    if rng.random() < code:
        counts["machine code"] += 1
        runs[words] = stages.compiled
        if rng.random() < 0.3:
            threads = backend(rng.choice((2, 3, 7)))
            runs[words + _THREADS] = _compiled(model, open_dims, threads, Counter()).compiled
    with tempfile.TemporaryDirectory() as folder, np.errstate(all="ignore"):
        if rng.random() < bundles:
            counts["bundle"] += 1
            module = glowpy.load(model, dims=open_dims)
            glowpy.bundle(module, folder, BundleOptions("net", emit="shared"), backend(1))
            runs[f"bundle for {words}"] = load_bundle(folder)
        for index in range(2 if extents else 1):
            dims = {name: pair[index] for name, pair in extents.items()}
            _compare_all(network, model, dims, runs, network.feeds(index))


def _compare_all(
    network: Network,
    model: onnx.ModelProto,
    dims: Mapping[str, int],
    runs: Mapping[str, Run],
    feeds: Mapping[str, Array],
) -> None:
    """Everything at these extents, with these inputs."""
    at = f" at {dict(dims)}" if dims else ""
    interpreted = _compiled(model, dims, glowpy.InterpreterBackend(), Counter()).compiled(feeds)
    other_results = {
        name: np.where(np.isnan(interpreted[name]), interpreted[name], array)
        if array.dtype.kind == "f" and array.shape == interpreted[name].shape
        else array
        for name, array in _reference(model, feeds)
    }  # onnxruntime's maxima pass over NaN, now and then

    @cache
    def judge() -> Judgement:
        return judged(model, feeds)

    compare(interpreted, other_results, network, f"interpreter, onnxruntime{at}", judge)
    results = {who: run(feeds) for who, run in runs.items()}
    for who, arrays in results.items():
        if not who.endswith(_THREADS):
            compare(arrays, interpreted, network, f"{who}, interpreter{at}", judge)
            continue
        alone = results[who.removesuffix(_THREADS)]
        for name, array in arrays.items():
            if alone[name].tobytes() != array.tobytes():
                raise DisagreementError(f"{who}: other bits of {name} than with one{at}")


def _reference(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
    """Runs onnxruntime on the model as written; yields nothing if there is a Resize, where it differs from onnx."""
    if any(node.op_type == "Resize" for node in model.graph.node):
        return
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        yield from zip(
            (o.name for o in session.get_outputs()), session.run(None, dict(feeds)), strict=True
        )
    except Exception:  # noqa: BLE001 - it has kinds of errors of its own, and lacks many kernels
        return


def compare(
    got: Mapping[str, Array],
    expected: Mapping[str, Array],
    network: Network,
    who: str,
    judge: Callable[[], Judgement] = lambda: None,
) -> None:
    """Raises DisagreementError where floats are off by more than rounding explains, or anything else is not equal.

    Where they are off, `judge` is asked whether what was got is as near to the exact numbers as rounding allows.
    """
    for name, wanted in expected.items():
        array = got[name]
        if array.shape != wanted.shape or array.dtype != wanted.dtype:
            raise DisagreementError(
                f"{who}: {name} is {array.dtype}{array.shape}, not {wanted.dtype}{wanted.shape}"
            )
        if wanted.dtype.kind != "f":
            if not np.array_equal(array, wanted):
                raise DisagreementError(f"{who}: {name} is not equal")
            continue
        a, b = array.astype(np.float64), wanted.astype(np.float64)
        finite = np.isfinite(b)
        largest = float(np.abs(b[finite]).max(initial=0.0))
        if largest > np.finfo(wanted.dtype).max / 1e4:
            continue  # what overflows first is a matter of order
        unequal = np.isfinite(a) != finite
        unequal |= np.isnan(a) != np.isnan(b)
        unequal |= ~finite & ~np.isnan(b) & ~np.isnan(a) & (a != b)
        if network.blurs:
            unequal &= ~np.isnan(a) | np.isfinite(b).all()
        both = finite & np.isfinite(a)
        apart = np.abs(np.where(both, a, 0.0) - np.where(both, b, 0.0))
        tolerance = (
            network.tolerance * largest + network.least + 2 * float(np.finfo(wanted.dtype).tiny)
        )
        if unequal.any() or (apart > tolerance).any():
            if not unequal.any() and _is_acquitted(name, a, apart > tolerance, tolerance, judge()):
                continue
            place = tuple(int(i) for i in np.argwhere(unequal | (apart > tolerance))[0])
            bad = int((unequal | (apart > tolerance)).sum())
            raise DisagreementError(
                f"{who}: {name}{list(array.shape)} at {place}: {array[place]} and {wanted[place]}, "
                f"{bad} of {array.size}, largest {largest:.3g}"
            )


def _is_acquitted(
    name: str, got: Array, doubtful: Array, tolerance: float, judgement: Judgement
) -> bool:
    """Whether doubtful floats are as near to exact ones as rounding allows: nobody is wrong, or the other one is."""
    if judgement is None or name not in judgement[0] or judgement[0][name].shape != got.shape:
        return False
    exact, spread = (part[name][doubtful] for part in judgement)
    near = np.abs(got[doubtful] - exact) <= tolerance + spread
    return bool((near & np.isfinite(spread)).all())
