"""`glowpy demo`: one real network from file to checked result, with what every stage did and cost."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import click
import numpy as np

from glowpy.cli.backends import backend_option
from glowpy.cli.files import write_text
from glowpy.cli.model import load_model
from glowpy.cli.verb import OutputFolder, Verb
from glowpy.core.random_array import random_array
from glowpy.core.tensor import Array
from glowpy.debugging.compare import Difference, compare
from glowpy.engine import compilation, compile
from glowpy.onnx_package.networks import packaged_network, packaged_networks
from glowpy.onnx_package.random_weights import with_random_weights
from glowpy.recipe import Compilation, Stage
from glowpy.support.console import print_json, print_table, progress
from glowpy.support.output_files import make_output_folder, write_output_file
from glowpy.support.timing import fastest

__all__ = ["demo"]

_RTOL = 1e-3
"""The tolerance of onnx's backend test runner, here also of the largest output."""
_SECONDS = 0.3
"""How long a network is run to see how fast it is."""
_SEED = 0


class _Clock:
    """Times and notes of the stages, in the order in which they began."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.notes: dict[str, str] = {}
        self.begun: dict[str, tuple[int, int]] = {}

    @contextmanager
    def time(self, stage: str) -> Iterator[None]:
        """Measures what happens inside the `with`."""
        start = time.perf_counter()
        with progress(stage) as begun:
            yield
        self.seconds[stage] = time.perf_counter() - start
        self.begun |= begun


@dataclass(frozen=True)
class _Check:
    """How far we are from somebody else, who took `seconds` for a run; 0 where that is no measure."""

    difference: Difference
    seconds: float = 0.0


@click.command(cls=Verb)
@click.option(
    "--network",
    type=click.Choice(packaged_networks()),
    default="squeezenet",
    show_default=True,
    help="One of the networks in the installed onnx package.",
)
@backend_option("cpu")
@click.option(
    "--output",
    "folder",
    type=OutputFolder(),
    help="The folder for model and dumps; a new temporary one if left out.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def demo(network: str, backend: str, folder: Path | None, as_json: bool) -> None:
    """Compile a real network, check its result, and show the time of every stage.

    The networks of the onnx package come without their trained weights: here they have random ones, the same
    every time. The result is compared with the interpreter's and, where it is installed, with that of onnxruntime,
    which runs on one thread as we do. Exits with 1 if a result is wrong.

    Examples:
      glowpy demo
      glowpy demo --network resnet50 --output dumps
    """
    target = make_output_folder(folder or tempfile.mkdtemp(prefix=f"glowpy-demo-{network}-"))
    model = target / f"{network}.onnx"
    content = with_random_weights(packaged_network(network), _SEED).SerializeToString()
    write_output_file(model, lambda file: file.write(content))
    clock = _Clock()
    with clock.time("load"):
        module = load_model(str(model))
    stages = compilation(module, backend)
    _compile(stages, clock)
    rng = np.random.default_rng(_SEED)
    inputs = {port.name: random_array(port.type, rng) for port in stages.program.ports.inputs}
    outputs, checks = _run(stages, model, inputs, clock)
    for stage in (Stage.GRAPH, Stage.LOWERED, Stage.IR, Stage.MEMORY):
        write_text(target / f"{stage}.glow", stages.text(stage))
    figures = _figures(stages, clock)
    if as_json:
        print_json(
            {
                "network": network,
                "backend": backend,
                "seconds": clock.seconds,
                "pass_seconds": stages.ctx.times,
                **figures,
                "checks": _described(checks),
                "dumps": str(target),
                "next": _next(model),
            }
        )
    else:
        _print(outputs, clock, checks, model)
    if not all(check.difference.within for check in checks.values()):
        raise click.exceptions.Exit(1)


def _compile(stages: Compilation, clock: _Clock) -> None:
    """Takes every stage once; optimizing is what the graph and IR recipes spend besides their named steps."""
    times = stages.ctx.times
    with clock.time("optimize"):
        _ = stages.lowered
    clock.seconds["optimize"] -= times["lower"]
    clock.seconds["lower"] = times["lower"]
    with clock.time("optimize IR"):
        _ = stages.ir
    seconds = clock.seconds.pop("optimize IR")
    for stage in ("schedule", "irgen"):
        clock.seconds[stage] = times[stage]
        seconds -= times[stage]
    clock.seconds["optimize IR"] = seconds
    with clock.time("memory"):
        _ = stages.program
    with clock.time("codegen"):
        _ = stages.compiled


def _run(
    stages: Compilation, model: Path, inputs: Mapping[str, Array], clock: _Clock
) -> tuple[dict[str, Array], dict[str, _Check]]:
    """The outputs, how fast they come, and how far they are from those of others."""
    instance = stages.compiled.instance()
    for name, array in inputs.items():
        instance.write(name, array)
    runs: dict[str, Callable[[], object]] = {"": instance.run}
    session = _onnxruntime(model)
    if session is not None:
        runs["onnxruntime"] = lambda: session(inputs)
    best = fastest(runs, _SECONDS)
    clock.seconds["run"] = best[""]
    outputs = {name: instance[name].copy() for name in stages.compiled.outputs}
    with clock.time("check"):
        expected = compile(stages.function, "interpreter")(inputs)
        checks = {"the interpreter": _Check(_largest(outputs, expected))}
        if session is not None:
            difference = _largest(outputs, session(inputs))
            name = f"onnxruntime {version('onnxruntime')}"
            checks[name] = _Check(difference, best["onnxruntime"])
    return outputs, checks


def _onnxruntime(model: Path) -> Callable[[Mapping[str, Array]], dict[str, Array]] | None:
    """Runs the model with onnxruntime on one thread; None where that is not installed."""
    try:
        import onnxruntime  # noqa: PLC0415 - optional and heavy
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # no warnings, which are about the file
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, dict(inputs)), strict=True))


def _largest(outputs: Mapping[str, Array], expected: Mapping[str, Array]) -> Difference:
    """The worst difference of all outputs."""
    scale = max(float(np.abs(array).max(initial=0.0)) for array in expected.values())
    differences = compare(outputs, expected, _RTOL, _RTOL * scale)
    return max(differences, key=lambda difference: (not difference.within, difference.absolute))


def _figures(stages: Compilation, clock: _Clock) -> dict[str, object]:
    """Figures of the stages for programs; writes notes for people to the clock."""
    plan, compiled, ir = stages.program.plan, stages.compiled, stages.ir
    weights = sum(tensor.type.size for tensor in stages.program.constants.values())
    cached, functions = clock.begun.get("compile", (0, 0))
    code = compiled.code_size
    nodes, instructions = stages.lowered.num_nodes, len(ir.instructions)
    rewrites = stages.ctx.applied.total()
    clock.notes |= {
        "load": f"{stages.function.num_nodes} nodes",
        "optimize": f"{rewrites} rewrites",
        "lower": f"{nodes} nodes left",
        "optimize IR": f"{instructions} instructions left",
        "memory": f"peak {plan.peak:,} bytes, lower bound {plan.lower_bound:,}; weights {weights:,}",
        "run": "the best of many, on one thread",
    }
    if functions:
        origin = f", {cached} of them from the cache" if cached else ""
        clock.notes["codegen"] = f"{functions} functions{origin}; object files {code:,} bytes"
    return {
        "nodes": stages.function.num_nodes,
        "rewrites": rewrites,
        "lowered_nodes": nodes,
        "instructions": instructions,
        "memory_peak": plan.peak,
        "memory_lower_bound": plan.lower_bound,
        "weights": weights,
        "functions": functions,
        "cached_functions": cached,
        "object_bytes": code,
    }


def _described(checks: Mapping[str, _Check]) -> dict[str, object]:
    return {
        against: {
            "largest_error": check.difference.absolute,
            "right": check.difference.within,
            "run_seconds": check.seconds or None,
        }
        for against, check in checks.items()
    }


def _next(model: Path) -> list[str]:
    """Commands that go on from here."""
    return [
        f"glowpy run {model} --repeat 20 --threads 0",
        f"glowpy dump {model} --stage asm",
        f"glowpy bundle {model} -o {model.parent / 'bundle'}",
    ]


def _print(
    outputs: Mapping[str, Array], clock: _Clock, checks: Mapping[str, _Check], model: Path
) -> None:
    rows = [
        [stage, f"{seconds * 1e3:.2f}", clock.notes.get(stage, "")]
        for stage, seconds in clock.seconds.items()
    ]
    print_table("", ["stage", ">milliseconds", ""], rows)
    for name, array in outputs.items():
        span = f"from {array.min():.3g} to {array.max():.3g}"
        click.echo(f"{name}: {array.size} numbers {span}, {np.unique(array).size} different ones")
    for against, check in checks.items():
        verdict = "right" if check.difference.within else "WRONG"
        click.echo(
            f"{verdict}: compared with {against}, largest error {check.difference.absolute:.3g}"
        )
    for against, check in checks.items():
        if check.seconds:
            ratio = clock.seconds["run"] / check.seconds
            times = f"{clock.seconds['run'] * 1e3:.2f} ms, {against} {check.seconds * 1e3:.2f} ms"
            click.echo(f"a run takes {times}: {ratio:.2f} of its time, on one thread each")
    click.echo(f"dumps: {model.parent}")
    click.echo("\n".join(["next:", *(f"  {command}" for command in _next(model))]))
