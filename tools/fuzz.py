"""Coverage-guided fuzzing of what reads untrusted input: `python tools/fuzz.py onnx|graph|ir [--seconds N]`.

Whatever the bytes are, a reader gives a module or raises UserError, soon and in little memory. An input that makes it
raise anything else is kept in the folder of findings, once for each place in the code, and fuzzing goes on; one that
takes too long, or too much memory, ends the run. Needs the extra `fuzz` (atheris, libFuzzer for Python).

The corpus begins with onnx's own test models, or with the graphs and programs among the tests, and grows by what
reaches new code. Models are not only damaged byte by byte: most changes are to nodes, attributes and types.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import atheris
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import defs
from onnx.backend.test.loader import load_model_tests

with atheris.instrument_imports(include=["glowpy"]):
    import glowpy
    import glowpy.graph.parser
    import glowpy.importer.formats
    import glowpy.ir.parser
    import glowpy.ops

ROOT = Path(__file__).resolve().parents[1]
_LARGEST = 1 << 14
"""Bytes of an input: small ones are tried more often."""
_ODD = (-(1 << 63), -(1 << 31), -2, -1, 0, 1, 2, 3, 7, 255, 1 << 20, 1 << 40, (1 << 63) - 1)
"""Integers at which programs go wrong."""


@dataclass(frozen=True)
class Target:
    """Something to fuzz.

    Attributes:
        read: The function that reads an input.
        seeds: Inputs to begin with, by name.
        change: Gives a changed input, of at most so many bytes, with a seed for the choice.
    """

    read: Callable[[bytes], object]
    seeds: Callable[[], Iterator[tuple[str, bytes]]]
    change: Callable[[bytes, int, int], bytes]


def _models() -> Iterator[tuple[str, bytes]]:
    for kind in ("node", "simple", "pytorch-operator"):
        for case in load_model_tests(kind=kind):
            model = case.model or onnx.load(Path(case.model_dir or "") / "model.onnx")
            content = model.SerializeToString()
            if len(content) <= _LARGEST:
                yield case.name, content


def _texts(word: str) -> Callable[[], Iterator[tuple[str, bytes]]]:
    """Returns seeds: the texts in the tests' .glow files that begin with a word."""

    def seeds() -> Iterator[tuple[str, bytes]]:
        for file in sorted((ROOT / "tests").rglob("*.glow")):
            code = re.sub(r"^\s*//.*\n", "", file.read_text("utf-8"), flags=re.MULTILINE)
            for index, text in enumerate(
                re.split(r"^(?=module|irfunction|memory)", code, flags=re.MULTILINE)
            ):
                if text.startswith(word):
                    yield f"{file.stem}{index}", text.encode()

    return seeds


def _changed_bytes(data: bytes, size: int, seed: int) -> bytes:
    del seed
    changed: bytes = atheris.Mutate(data, size)
    return changed


_OPERATORS = sorted({schema.name for schema in defs.get_all_schemas_with_history()})
_KINDS = [kind for kind in onnx.TensorProto.DataType.values() if kind]


def _odd(rng: random.Random) -> int:
    return rng.choice(_ODD) if rng.random() < 0.5 else rng.randrange(-8, 9)


def _change_inputs(model: onnx.ModelProto, rng: random.Random) -> None:
    node, other = rng.choice(model.graph.node), rng.choice(model.graph.node)
    names = [*other.input, *other.output, ""]
    if node.input and rng.random() < 0.7:
        node.input[rng.randrange(len(node.input))] = rng.choice(names)
    elif rng.random() < 0.5:
        node.input.append(rng.choice(names))
    else:
        del node.input[rng.randrange(len(node.input) + 1) :]


def _change_operator(model: onnx.ModelProto, rng: random.Random) -> None:
    rng.choice(model.graph.node).op_type = rng.choice(_OPERATORS)


def _change_attribute(model: onnx.ModelProto, rng: random.Random) -> None:
    node = rng.choice(model.graph.node)
    if not node.attribute or rng.random() < 0.3:
        schema = defs.get_schema(node.op_type) if defs.has(node.op_type) else None
        names = list(schema.attributes) if schema else ["axis"]
        attribute = node.attribute.add(name=rng.choice(names or ["axis"]))
        attribute.type = rng.choice((onnx.AttributeProto.INT, onnx.AttributeProto.INTS))
    attribute = rng.choice(node.attribute)
    attribute.i = _odd(rng)
    attribute.f = rng.choice((0.0, -1.0, 1e38, float("nan"), float("inf")))
    for index in range(len(attribute.ints)):
        if rng.random() < 0.5:
            attribute.ints[index] = _odd(rng)
    if rng.random() < 0.3:
        attribute.ints.append(_odd(rng))


def _change_type(model: onnx.ModelProto, rng: random.Random) -> None:
    infos = [*model.graph.input, *model.graph.output, *model.graph.value_info]
    tensor = rng.choice(infos).type.tensor_type
    if rng.random() < 0.3:
        tensor.elem_type = rng.choice(_KINDS)
    for dim in tensor.shape.dim:
        if rng.random() < 0.3:
            dim.dim_value = _odd(rng)
        elif rng.random() < 0.2:
            dim.dim_param = rng.choice(("n", "m", "", "n+1"))
    if rng.random() < 0.2:
        tensor.shape.dim.add().dim_value = _odd(rng)


def _change_tensor(model: onnx.ModelProto, rng: random.Random) -> None:
    tensors = [*model.graph.initializer]
    tensors += [a.t for node in model.graph.node for a in node.attribute if a.HasField("t")]
    if not tensors:
        return
    tensor = rng.choice(tensors)
    if rng.random() < 0.3:
        tensor.data_type = rng.choice(_KINDS)
    for index in range(len(tensor.dims)):
        if rng.random() < 0.3:
            tensor.dims[index] = _odd(rng)
    for index in range(len(tensor.int64_data)):
        tensor.int64_data[index] = _odd(rng)
    if tensor.raw_data:
        content = bytearray(tensor.raw_data)
        content[rng.randrange(len(content))] = rng.randrange(256)
        tensor.raw_data = bytes(content)


def _change_graph(model: onnx.ModelProto, rng: random.Random) -> None:
    nodes = model.graph.node
    match rng.randrange(4):
        case 0:
            nodes.add().CopyFrom(rng.choice(nodes))
        case 1:
            del nodes[rng.randrange(len(nodes))]
        case 2 if model.opset_import:
            rng.choice(model.opset_import).version = rng.choice((*range(1, 30), _odd(rng)))
        case _:
            input = model.graph.input.add()
            input.CopyFrom(rng.choice(model.graph.output))


_CHANGES = (
    _change_inputs, _change_operator, _change_attribute, _change_type, _change_tensor, _change_graph,
)  # fmt: skip


def _changed_model(data: bytes, size: int, seed: int) -> bytes:
    """The model with some nodes, attributes, types or tensors changed; its bytes, where it is none."""
    rng = random.Random(seed)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        return _changed_bytes(data, size, seed)
    if rng.random() < 0.3 or not model.graph.node:
        return _changed_bytes(data, size, seed)
    for _ in range(rng.choice((1, 1, 2, 4))):
        with suppress(
            ValueError, IndexError, TypeError
        ):  # a list that is empty, a number that does not fit
            rng.choice(_CHANGES)(model, rng)
    changed: bytes = model.SerializeToString()
    return changed if len(changed) <= size else _changed_bytes(data, size, seed)


TARGETS: Mapping[str, Target] = {
    "onnx": Target(glowpy.load, _models, _changed_model),
    "graph": Target(
        lambda data: glowpy.graph.parser.parse_module(data.decode("utf-8", "replace")),
        _texts("module"),
        _changed_bytes,
    ),
    "ir": Target(
        lambda data: glowpy.ir.parser.parse_irfunction(data.decode("utf-8", "replace")),
        _texts("irfunction"),
        _changed_bytes,
    ),
}


def _place(error: Exception) -> str:
    """The last line of glowpy on the way to an error."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "glowpy" in f.filename]
    return (
        f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else type(error).__name__
    )


def main() -> None:
    """Fuzzes until the time is over, or something is found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--seconds", type=int, default=600, help="how long (default: 600)")
    parser.add_argument("--corpus", type=Path, default=Path("fuzz"), help="folder of inputs")
    parser.add_argument("--timeout", type=int, default=20, help="seconds that one input may take")
    parser.add_argument("--memory", type=int, default=3072, help="MiB that the process may take")
    options = parser.parse_args()
    target = TARGETS[options.target]
    corpus, findings = options.corpus / options.target, options.corpus / "findings"
    for folder in (corpus, findings):
        folder.mkdir(parents=True, exist_ok=True)
    for name, content in target.seeds():
        (corpus / name).write_bytes(content)

    found: set[str] = set()

    def read(data: bytes) -> None:
        try:
            target.read(data)
        except glowpy.UserError:
            pass
        except Exception as error:  # noqa: BLE001 - whatever it is, it is to be reported
            place = _place(error)
            if place not in found:
                found.add(place)
                (findings / f"{options.target}-{len(found)}").write_bytes(data)
                sys.stdout.write(f"FOUND {options.target}-{len(found)}: {place}: {error!r:.200}\n")

    limits: list[Any] = [
        f"-max_total_time={options.seconds}",
        f"-timeout={options.timeout}",
        f"-rss_limit_mb={options.memory}",
        f"-max_len={_LARGEST}",
        f"-artifact_prefix={findings}/",
        "-print_final_stats=1",
        "-reload=0",
    ]
    atheris.Setup([sys.argv[0], *limits, str(corpus)], read, custom_mutator=target.change)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
