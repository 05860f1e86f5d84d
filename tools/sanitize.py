"""Random networks with open extents under the sanitizer: `python -m tools.sanitize [--count N] [--bundles N]`.

Each network, of `tools.patterns` or of the tests' own generators, is compiled for ranges of its extents by the
interpreter and the CPU backend, and some become bundles. All run at the lowest extents, at 1, at 2, at random ones
and at the highest, while `glowpy.sanitizer` watches every run of instructions. What touches memory outside its
operands is printed with the network's seed, and so is what ends the process, a network that breaks a rule of its own
level, and results that rounding does not explain. Networks run in processes of their own, some at a time. Of each kind
of refusal the first seed is printed.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import onnx

import glowpy
from glowpy.backend import Backend, CompileOptions
from glowpy.bundling.make import random_inputs
from glowpy.bundling.sanitize import extents_to_try, load_sanitized
from glowpy.core.extents import symbols_of_types
from glowpy.graph.function import Module
from glowpy.runtime.host_call import HostCall
from glowpy.support.errors import GlowError, UserError, VerifyError
from glowpy.support.symbolic import symbol
from tests.unit.networks import SearchingNetwork, SymbolicNetwork
from tests.unit.open_networks import OpenNetwork
from tools.exact import DifferenceError, compare, judged
from tools.patterns.__main__ import PATTERNS
from tools.patterns.network import Network
from tools.patterns.trial import backend_for, eager

_CHUNK = 40
"""So many networks run in a process: LLVM keeps some memory for each."""


@dataclass(frozen=True)
class Subject:
    """A network to compile, in words and as a function that builds it anew."""

    name: str
    build: Callable[[], Module]


def subject_of(seed: int, only: Sequence[str] = ()) -> Subject:
    """The network of a seed: of every pattern and every generator of the tests in turns, or of `only` some by name."""
    patterns, turn = sorted(PATTERNS), seed // 3
    pattern, cls = patterns[turn % len(patterns)], _GENERATORS[seed % len(_GENERATORS)]
    name = only[seed % len(only)] if only else pattern if seed % 3 == 1 else cls.__name__
    if name in PATTERNS:
        return Subject(f"{name} {seed}", lambda: _pattern(name, seed))
    (cls,) = {generator for generator in _GENERATORS if generator.__name__ == name}
    return Subject(f"{name} {seed}", lambda: cls(random.Random(seed), _SIZE).module)


_GENERATORS: tuple[type[SymbolicNetwork], ...] = (
    *(OpenNetwork, OpenNetwork, OpenNetwork, SymbolicNetwork, SearchingNetwork),
)
_NAMES = sorted({cls.__name__ for cls in _GENERATORS})
_SIZE = 7
"""Nodes of a network of these, at most."""


def _pattern(name: str, seed: int) -> Module:
    """The network of a pattern, whose extents are open from 1 on, or else between the two that it knows of."""
    network = Network(random.Random(f"{name} {seed}"))
    network.is_open = True
    PATTERNS[name](network)
    model = network.model()
    pairs = network.open_extents
    try:
        dims = {key: symbol(key, min(1, *pair), max(pair) + 1) for key, pair in pairs.items()}
        return glowpy.load(model, dims=dims)
    except UserError:
        dims = {key: symbol(key, min(pair), max(pair) + 1) for key, pair in pairs.items()}
        return glowpy.load(model, dims=dims)


def try_network(
    seed: int, counts: Counter[str], *, bundled: bool, only: Sequence[str] = ()
) -> None:
    """Compiles and runs the network of a seed. Raises what is wrong with it, UserError for one that is refused.

    A network that is built and then breaks a rule is wrong as well: that is a VerifyError.
    """
    subject, rng = subject_of(seed, only), random.Random(seed)
    module = subject.build()
    if not symbols_of_types(port.type for port in module.placeholders):
        counts["networks without open extents, left out"] += 1
        return
    options = CompileOptions(sanitize=True)
    cpu = backend_for(seed)
    backends: list[Backend] = [glowpy.InterpreterBackend(), cpu]
    with eager(), tempfile.TemporaryDirectory() as folder:
        functions: list[HostCall] = [
            glowpy.compile(subject.build(), backend, options) for backend in backends
        ]  # from a module each, which a compilation changes
        if bundled:
            bundle = glowpy.BundleOptions("net", emit="shared", sanitize=True)
            glowpy.bundle(subject.build(), folder, bundle, cpu)
            functions += load_sanitized(folder).values()
            counts["bundles"] += 1
        counts["networks"] += 1
        for extents in extents_to_try(functions[0].symbols, rng):
            by_placeholder = random_inputs(functions[0].input_ports, seed, extents)
            inputs = {p.name: by_placeholder[p.placeholder] for p in functions[0].input_ports}
            results = [function(inputs) for function in functions]
            counts["runs"] += len(results)
            judge = cache(partial(judged, subject.build, by_placeholder))
            for other in results[1:]:
                compare(other, results[0], judge)


def run_chunk(seeds: range, bundled: frozenset[int], only: Sequence[str]) -> None:
    """Tries networks in this process; says before each what it is about to do, and then what came of it."""
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    for seed in seeds:
        counts: Counter[str] = Counter()
        sys.stdout.write(json.dumps({"begin": seed}) + "\n")
        sys.stdout.flush()
        found = refused = ""
        try:
            try_network(seed, counts, bundled=seed in bundled, only=only)
        except (DifferenceError, VerifyError) as error:
            found = str(error).splitlines()[0]
        except (UserError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:  # fmt: skip
            refused = str(error).splitlines()[0][:120]
        except GlowError as error:
            found = str(error).splitlines()[0]
        except Exception as error:  # noqa: BLE001 - whatever it is, it is to be reported
            frame = traceback.extract_tb(error.__traceback__)[-1]
            found = f"{error!r:.300} at {frame.filename}:{frame.lineno}"
        sys.stdout.write(json.dumps({"found": found, "refused": refused, "counts": counts}) + "\n")
        sys.stdout.flush()


def kind_of(refusal: str) -> str:
    """A refusal without names, numbers and shapes, which differ between networks of one kind."""
    return re.sub(r"'[^']*'|\[[^]]*\]|%\w+|[\w()*+,-]*\d[\w()*+,-]*", "_", refusal)


def _results(seeds: range, bundles: int, only: Sequence[str]) -> Iterator[dict[str, object]]:
    """Yields the result of each seed, by processes of their own; one that ends is followed by another."""
    first = seeds.start
    while first < seeds.stop:
        last = min(first + _CHUNK, seeds.stop)
        command = [sys.executable, "-m", "tools.sanitize", "--chunk", str(first), str(last)]  # fmt: skip
        command += [f"--seed={seeds.start}", f"--count={len(seeds)}", f"--bundles={bundles}"]
        command += ["--only", *only] if only else []
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seed = first
        for line in done.stdout.splitlines():
            result = json.loads(line)
            if "begin" in result:
                seed = result["begin"]
            else:
                first = seed + 1
                yield {"seed": seed, **result}
        if done.returncode:
            last_words = done.stderr.strip().splitlines()[-1:]
            yield {"seed": seed, "found": f"the process ends with {done.returncode}: {last_words}"}
            first = seed + 1


def main() -> None:
    """Tries networks, and prints counts; exit status 1 if something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="networks to try")
    parser.add_argument("--seed", type=int, default=0, help="of the first network")
    parser.add_argument(
        "--bundles", type=int, default=4, help="so many of them become bundles, too"
    )
    parser.add_argument("--only", nargs="*", default=[], choices=[*PATTERNS, *_NAMES])
    parser.add_argument("--chunk", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.count)
    if options.chunk:
        bundled = random.Random(0).sample(seeds, min(options.bundles, len(seeds)))
        run_chunk(range(*options.chunk), frozenset(bundled), options.only)
        return
    counts: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    first: dict[str, str] = {}
    for result in _results(seeds, options.bundles, options.only):
        seed = result["seed"]
        if result["found"]:
            counts["found"] += 1
            sys.stdout.write(
                f"FOUND {subject_of(int(str(seed)), options.only).name}: {result['found']}\n"
            )
            sys.stdout.flush()
        if result.get("refused"):
            reason = kind_of(str(result["refused"]))
            refused[reason] += 1
            first.setdefault(reason, f"{seed}: {result['refused']}")
        more = result.get("counts", {})
        assert isinstance(more, dict)
        counts.update(more)
        if int(str(seed)) % _CHUNK == 0:
            sys.stderr.write(f"seed {seed}: {dict(counts)}\n")
    sys.stdout.writelines(f"{n:6} {what}\n" for what, n in sorted(counts.items()))
    sys.stdout.write("refused, of each kind the first seed:\n")
    sys.stdout.writelines(f"{n:6} {first[kind]}\n" for kind, n in refused.most_common())
    sys.exit(bool(counts["found"]))


if __name__ == "__main__":
    main()
