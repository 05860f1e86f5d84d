"""The networks that `tools/bench.py` times: files, what they are fed, and what they have to compute.

* The nine light networks of `tools/zoo.py` with random weights, and ONNX files of yours, on random inputs. What they
  have to compute is what onnxruntime computes. The light ones compute one image, or as many as are asked for.
* Light networks in 8-bit integers: quantized by glowpy from what they compute on random inputs, as ONNX files.
* What PyTorch exports of the networks in `tools/exports/`, in the widths that people use, with fixed extents. What
  they have to compute is what PyTorch computes.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from argparse import ArgumentTypeError
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import glowpy
from glowpy.benchmark.peers import Inputs
from glowpy.core.random_array import random_array
from glowpy.core.tensor import Array
from glowpy.support.errors import UserError
from tools.bench_command import existing_file
from tools.zoo import NAMES, batched, initialised

__all__ = ["TABLE", "Subject", "names_of", "networks", "prepared"]

TABLE = (
    *NAMES,
    *("resnet18", "mobilenetv2", "efficientnet", "convnext", "unet", "detector", "swin", "vit"),
    *("bert", "gpt2 prefill", "gpt2 decode", "llama decode", "lstm"),
)
"""Every network that is timed if none is named."""

_SAMPLES = 3
"""Inputs that the ranges of a quantized network are measured on."""
_FED, _COMPUTED = "fed ", "computed "
"""How names of arrays begin in files that are kept."""


@dataclass(frozen=True)
class Subject:
    """A network to time.

    Attributes:
        name: Its name.
        path: Its file, which is there inside the `with`.
        inputs: The inputs it is fed.
        expected: The outputs it has to compute.
        is_rounded: Whether it computes in integers, whose rounding differs between runtimes.
    """

    name: str
    path: Path
    inputs: Inputs
    expected: Sequence[Array]
    is_rounded: bool = False


def names_of(text: str) -> list[str]:
    """`a,b` as a list."""
    return [name for name in text.split(",") if name]


def networks(text: str) -> list[str]:
    """Networks of TABLE, and ONNX files that can be read."""
    names = names_of(text)
    for name in names:
        if name.endswith(".onnx"):
            existing_file(name)
        elif name not in TABLE:
            expected = ", ".join(TABLE)
            raise ArgumentTypeError(
                f"no network '{name}': expected FILE.onnx, or some of {expected}"
            )
    if not names:
        raise ArgumentTypeError("expected a network")
    return names


@contextmanager
def prepared(
    name: str, folder: Path, *, small: bool, keep: bool, batch: int = 1, int8: bool = False
) -> Iterator[Subject]:
    """A network inside the `with`.

    Args:
        name: One of TABLE, or an ONNX file.
        folder: Where its file is written.
        small: Whether an export is as small as in tests.
        keep: Whether the file stays there, with its inputs and outputs beside it, and what lies there is taken.
        batch: How many images a light network computes.
        int8: Whether a light network is quantized.
    """
    if name.endswith(".onnx"):
        yield _file(Path(name).stem, Path(name))
        return
    apart = {"small": small, f"batch{batch}": batch > 1, "int8": int8}
    folder = folder.joinpath(*(part for part, is_so in apart.items() if is_so))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name.replace(' ', '-')}.onnx"
    arrays = path.with_suffix(".npz")
    if keep and path.is_file() and arrays.is_file():
        yield replace(_kept(name, path, arrays), is_rounded=int8)
        return
    if name in NAMES:
        onnx.save(batched(initialised(name), batch), path)
        if int8:
            _quantize(path)
        subject = replace(_file(name, path), is_rounded=int8)
    else:
        subject = _export(name, path, small=small)
    if keep:
        _keep(subject, arrays)
    yield subject
    if not keep:
        path.unlink()


def _quantize(path: Path) -> None:
    """Puts a network in integers in the place of one in floats, by the ranges that random inputs have."""
    function, rng = glowpy.load(path).main, np.random.default_rng(0)
    samples, profile = path.with_suffix(".npz"), path.with_suffix(".yaml")
    stacked = {
        port.original: np.stack([random_array(port.type, rng) for _ in range(_SAMPLES)])
        for port in function.inputs
    }
    np.savez(samples, allow_pickle=False, **stacked)
    whole = path.with_suffix(".int8.onnx")
    for words in (
        ("profile", path, "--inputs", samples, "-o", profile),
        ("quantize", path, "--profile", profile, "-o", whole),
    ):
        subprocess.run([sys.executable, "-m", "glowpy", *map(str, words)], check=True)
    samples.unlink()
    profile.unlink()
    whole.replace(path)


def _keep(subject: Subject, path: Path) -> None:
    """Writes what a network is fed and has to compute."""
    inputs = {f"{_FED}{name}": array for name, array in subject.inputs.items()}
    outputs = {f"{_COMPUTED}{index:04}": array for index, array in enumerate(subject.expected)}
    np.savez(path, allow_pickle=False, **inputs, **outputs)


def _kept(name: str, file: Path, path: Path) -> Subject:
    """A network whose file and arrays lie there already."""
    with np.load(path) as arrays:
        fed = [key for key in arrays.files if key.startswith(_FED)]
        inputs = {key.removeprefix(_FED): arrays[key] for key in fed}
        expected = [arrays[key] for key in sorted(set(arrays.files) - set(fed))]
    return Subject(name, file, inputs, expected)


def _file(name: str, path: Path) -> Subject:
    function, rng = glowpy.load(path).main, np.random.default_rng(0)
    inputs = {port.original: random_array(port.type, rng) for port in function.inputs}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what is wrong is in the exception
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return Subject(name, path, inputs, session.run(None, inputs))


def _export(name: str, path: Path, *, small: bool) -> Subject:
    """Exports a network with all extents fixed, so that no runtime has to be ready for others."""
    try:  # PyTorch is not always there
        catalogue: Any = importlib.import_module("tools.exports.catalogue")
    except ModuleNotFoundError as error:
        raise UserError(
            f"'{name}' is exported by PyTorch: {error}", note="pip install '.[bench,models]'"
        ) from error
    export = replace(catalogue.TIMED[name], free={})
    size = export.small if small else export.large
    network, tensors = catalogue.made(export, size), catalogue.inputs(export, size.extents)
    catalogue.exported(export, network, tensors, path, dynamo=False)
    inputs = {name: tensor.numpy() for name, tensor in tensors.items()}
    return Subject(name, path, inputs, catalogue.outputs(network, tensors))
