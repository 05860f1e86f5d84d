"""ncnn for `glowpy bench --vs`: what its converter pnnx makes of an ONNX file, and how that is loaded, run and read.

ncnn reads no ONNX, and ends the process where it runs a graph that it could not read. So another process tries the
graph first, and what becomes of that is reported: `python -m glowpy.benchmark.ncnn NAME.param NAME.bin INPUTS.npz`.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from glowpy.core.tensor import Array
from glowpy.onnx_package.upgrade import write_upgraded
from glowpy.support.children import child_environment
from glowpy.support.errors import UserError

__all__ = ["Ncnn", "ncnn_files"]

_SECONDS = 300
"""Seconds after which another process is ended."""
_OPSET = 13
"""pnnx takes Softmax of an older opset for that of this one, which normalizes another dimension."""
_UNKNOWN = "not exists or registered"
"""How ncnn says that it does not know a layer."""
_CONVERT = "import pnnx; pnnx.pnnx()"


@contextmanager
def ncnn_files(
    path: Path, inputs: Mapping[str, Array], folder: Path | None
) -> Iterator[tuple[Path, Path]]:
    """The .param and .bin of a model inside the `with`: those of `folder` by its name, or what pnnx makes of it.

    They have been tried in another process. Raises UserError where there are none, or ncnn does not compute them.
    """
    with tempfile.TemporaryDirectory() as scratch:
        given = folder / f"{path.stem}.param" if folder is not None else None
        if given is not None and given.is_file():
            files = given, given.with_suffix(".bin")
        else:
            files = _converted(path, inputs, Path(scratch))
        feeds = Path(scratch) / "inputs.npz"
        arrays: dict[str, Any] = {str(index): a for index, a in enumerate(inputs.values())}
        np.savez(feeds, **arrays)
        trial = [sys.executable, "-m", __name__, *map(str, files), str(feeds)]
        _finish(trial, None, "ncnn cannot run the model")
        yield files


def _converted(path: Path, inputs: Mapping[str, Array], scratch: Path) -> tuple[Path, Path]:
    """Converts a model with pnnx, which writes beside its input, so in a folder of its own. Raises UserError."""
    if find_spec("pnnx") is None:
        raise UserError(
            f"ncnn reads no ONNX: expected {path.stem}.param and {path.stem}.bin, which pnnx makes",
            note="pip install pnnx, or --ncnn-models names their folder",
        )
    file = scratch / "model.onnx"
    write_upgraded(path, file, _OPSET)
    shapes = ",".join(f"{list(a.shape)}{a.dtype.kind}{a.itemsize * 8}" for a in inputs.values())
    options = [str(file), "fp16=0", f"inputshape={shapes.replace(' ', '')}"]
    _finish([sys.executable, "-c", _CONVERT, *options], scratch, "pnnx cannot convert the model")
    files = file.with_suffix(".ncnn.param"), file.with_suffix(".ncnn.bin")
    if not all(file.is_file() for file in files):
        raise UserError("pnnx cannot convert the model: it wrote nothing for ncnn")
    return files


def _finish(command: Sequence[str], folder: Path | None, what: str) -> None:
    """Runs a command to its end, in a folder. Raises UserError, which says what happened, unless it ends well."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=child_environment(command),
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"{what}: it took longer than {_SECONDS} s") from None
    if done.returncode:
        # A process in between gives a signal on as 256 less its number.
        number = -done.returncode % 256
        ends = {s.value: s.name for s in signal.Signals if s.name in ("SIGSEGV", "SIGABRT")}
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        unknown = [line for line in lines if line.endswith(_UNKNOWN)]
        reason = f"it crashes ({ends[number]})" if number in ends else (unknown or lines[-1:])[0]
        raise UserError(f"{what}: {reason}")


class Ncnn:
    """A graph that runs: blobs in0, in1, ... go in without the batch dimension, and so do out0, out1, ... come out.

    ncnn has no batches: their elements are computed one after another.
    """

    def __init__(
        self, module: Any, files: tuple[Path, Path], inputs: Sequence[Array], threads: int
    ) -> None:
        """Loads it in f32, as the other runtimes compute. Raises UserError where ncnn cannot read it."""
        self._net = module.Net()
        self._net.opt.num_threads = threads
        for option in dir(self._net.opt):
            if option.startswith(("use_fp16", "use_bf16")):
                setattr(self._net.opt, option, False)
        param, weights = files
        if self._net.load_param(str(param)) or self._net.load_model(str(weights)):
            raise UserError(f"ncnn cannot read {param.name}")
        if len(self._net.input_names()) != len(inputs):
            raise UserError(f"{param.name} has {len(self._net.input_names())} inputs")
        self._batch = [
            [module.Mat(array).clone() for array in element] for element in _elements(inputs)
        ]
        self._results: list[list[Any]] = []

    def run(self) -> None:
        """Computes every output. Raises UserError where that fails."""
        self._results = [self._one(blobs) for blobs in self._batch]

    def _one(self, blobs: Sequence[Any]) -> list[Any]:
        """The outputs for one element of the batch."""
        extractor = self._net.create_extractor()
        for index, blob in enumerate(blobs):
            extractor.input(f"in{index}", blob)
        count = len(self._net.output_names())
        results = [extractor.extract(f"out{index}") for index in range(count)]
        if any(status for status, _ in results):
            raise UserError("ncnn does not compute every output")
        return [result for _, result in results]

    def outputs(self) -> list[Array]:
        """Returns the results of the last run, with a batch dimension."""
        return [np.stack([np.array(r) for r in same]) for same in zip(*self._results, strict=True)]


def _elements(inputs: Sequence[Array]) -> Iterator[list[Array]]:
    """The inputs of every element of a batch, whose integers have 32 bits. Raises UserError where there is no batch."""
    lengths = {array.shape[:1] for array in inputs}
    if len(lengths) > 1 or () in lengths:
        shapes = ", ".join(str(array.shape) for array in inputs)
        raise UserError(f"ncnn: expected inputs for one batch, got the shapes {shapes}")
    for element in zip(*inputs, strict=True):
        yield [
            np.ascontiguousarray(array, np.int32 if array.dtype == np.int64 else array.dtype)
            for array in element
        ]


def _try(param: str, weights: str, feeds: str) -> int:
    """Runs a graph once; 1 if that fails, after saying why."""
    with np.load(feeds) as arrays:
        inputs = list(arrays.values())
    try:
        Ncnn(import_module("ncnn"), (Path(param), Path(weights)), inputs, 1).run()
    except UserError as error:
        sys.stderr.write(f"{error.diagnostics[0].message}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_try(*sys.argv[1:]))
