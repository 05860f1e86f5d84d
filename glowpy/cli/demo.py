"""`glowpy demo`: one real network from file to checked result, with what every stage cost."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click
import numpy as np

from glowpy.cli.backends import backend_option
from glowpy.cli.check import Difference, compare
from glowpy.cli.files import write_text
from glowpy.cli.model import load_model
from glowpy.cli.output import print_json, print_table, progress
from glowpy.cli.verb import OutputFolder, Verb
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.engine import compilation, compile
from glowpy.graph.function import Module
from glowpy.importer.onnx.reference import packaged_network, packaged_networks, read_tensor
from glowpy.recipe import Compilation, Stage
from glowpy.support.output_files import make_output_folder

__all__ = ["demo"]

_RTOL, _ATOL = 1e-3, 1e-7
"""The tolerances of onnx's backend test runner."""
_RUNS = 5


class _Clock:
    """Seconds by stage, in the order in which the stages began."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def time(self, stage: str) -> Iterator[None]:
        """Measures what happens inside the `with`."""
        start = time.perf_counter()
        try:
            with progress(stage):
                yield
        finally:
            self.seconds[stage] = time.perf_counter() - start


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
    help="Where to write the dumps; a new temporary folder if left out.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def demo(network: str, backend: str, folder: Path | None, as_json: bool) -> None:
    """Compiles a real network, runs it, and checks the result.

    The network is compared with the output that the onnx package expects, and, with random weights, with the
    interpreter. Exits with 1 if a result is wrong.

    Examples:
      glowpy demo
      glowpy demo --network resnet50 --output dumps
    """
    model, expected_file = packaged_network(network)
    clock = _Clock()
    with clock.time("load"):
        module = load_model(str(model))
    stages = compilation(module, backend)
    _compile(stages, clock)
    plan = stages.program.plan
    inputs = {port.name: _test_input(port.type) for port in stages.program.inputs}
    outputs = _run(stages, inputs, clock)
    expected = dict(zip(outputs, [read_tensor(expected_file)], strict=True))
    with clock.time("check"):
        checks = {
            "the output that the onnx package expects": compare(outputs, expected, _RTOL, _ATOL)[0],
            "the interpreter, with random weights": _random_check(module, backend, inputs),
        }
    target = make_output_folder(folder or tempfile.mkdtemp(prefix=f"glowpy-demo-{network}-"))
    for stage in (Stage.GRAPH, Stage.LOWERED, Stage.IR, Stage.MEMORY):
        write_text(target / f"{stage}.glow", stages.text(stage))
    if as_json:
        print_json(
            {
                "network": network,
                "backend": backend,
                "seconds": clock.seconds,
                "pass_seconds": stages.ctx.times,
                "memory_peak": plan.peak,
                "memory_lower_bound": plan.lower_bound,
                "checks": {
                    against: {"largest_error": difference.absolute, "right": difference.within}
                    for against, difference in checks.items()
                },
                "dumps": str(target),
            }
        )
    else:
        _print(stages, clock, checks, target)
    if not all(difference.within for difference in checks.values()):
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
    whole = clock.seconds.pop("optimize IR")
    for stage in ("schedule", "irgen"):
        clock.seconds[stage] = times[stage]
        whole -= times[stage]
    clock.seconds["optimize IR"] = whole
    with clock.time("memory"):
        _ = stages.program
    with clock.time("codegen"):
        _ = stages.compiled


def _run(stages: Compilation, inputs: dict[str, Array], clock: _Clock) -> dict[str, Array]:
    """The outputs; the clock keeps the best of several runs."""
    instance = stages.compiled.instance()
    for name, array in inputs.items():
        instance.write(name, array)
    best = float("inf")
    for _ in range(_RUNS):
        with clock.time("run"):
            instance.run()
        best = min(best, clock.seconds["run"])
    clock.seconds["run"] = best
    return {name: instance[name].copy() for name in stages.compiled.outputs}


def _test_input(type: Type) -> Array:
    """What onnx's backend test runner feeds its packaged networks: 0/n, 1/n, ..., (n-1)/n."""
    ramp = np.arange(type.count).reshape(type.shape) / type.count
    return ramp.astype(type.kind.dtype)


def _random_check(module: Module, backend: str, inputs: dict[str, Array]) -> Difference:
    """How far the backend is from the interpreter when the weights are random.

    The packaged networks have one number in every weight, and most give the same output for every class: a
    wrong kernel would not show.
    """
    random = _with_random_weights(module)
    expected = compile(random, "interpreter")(inputs)
    scale = max(float(np.abs(array).max(initial=0.0)) for array in expected.values())
    differences = compare(compile(random, backend)(inputs), expected, _RTOL, _RTOL * scale)
    return max(differences, key=lambda difference: (not difference.within, difference.absolute))


def _with_random_weights(module: Module) -> Module:
    """A copy of the module with other constants, which keep activations at about their size (He et al. 2015)."""
    copy = module.clone()
    rng = np.random.default_rng(0)
    for constant in copy.constants:
        type = constant.type
        if not type.kind.is_float or type.count == 1:
            continue
        if type.count > max(type.shape):
            fan_in = type.count / (type.shape[-1] if type.rank == 2 else type.shape[0])
            array = rng.standard_normal(type.shape) * np.sqrt(2 / fan_in)
        else:
            array = 0.1 + 0.1 * rng.random(type.shape)
        other = copy.create_constant(constant.name, array.astype(type.kind.dtype))
        constant.value.replace_all_uses_with(other.value)
    return copy


def _print(
    stages: Compilation, clock: _Clock, checks: Mapping[str, Difference], folder: Path
) -> None:
    plan = stages.program.plan
    notes = {
        "load": f"{stages.function.num_nodes} nodes",
        "lower": f"{stages.lowered.num_nodes} nodes left",
        "optimize IR": f"{len(stages.ir.instructions)} instructions left",
        "memory": f"peak {plan.peak:,} bytes, lower bound {plan.lower_bound:,}",
        "run": f"best of {_RUNS}",
    }
    rows = [[stage, f"{s * 1e3:.2f}", notes.get(stage, "")] for stage, s in clock.seconds.items()]
    print_table("", ["stage", ">milliseconds", ""], rows)
    for against, difference in checks.items():
        verdict = "right" if difference.within else "WRONG"
        click.echo(f"{verdict}: compared with {against}, largest error {difference.absolute:.3g}")
    click.echo(f"dumps: {folder}")
