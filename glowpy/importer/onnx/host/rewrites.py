"""Operators whose labels are strings, as the same operators on integers, and a lookup before or after them.

Machine code then computes what the operator is about, such as a classifier with its trees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from glowpy.importer.onnx.source import domain_of

__all__ = ["LOOKUP_OPSET", "ML", "length_before", "rewritten"]

ML = "ai.onnx.ml"
LOOKUP_OPSET = 2
"""The least opset of that domain for lookups, which are not of the user's model."""

_CLASSIFIERS = {
    "LinearClassifier": "classlabels_ints",
    "SVMClassifier": "classlabels_ints",
    "TreeEnsembleClassifier": "classlabels_int64s",
}
"""Attributes with labels that are not strings, and the name of each."""


def rewritten(node: onnx.NodeProto) -> Sequence[onnx.NodeProto]:
    """The nodes that stand for one: itself, unless its attributes hold strings that it looks for or gives."""
    key = domain_of(node.domain), node.op_type
    if key == ("", "TfIdfVectorizer"):
        return _numbered(node, "pool_strings", "pool_int64s")
    if key == (ML, "OneHotEncoder"):
        return _numbered(node, "cats_strings", "cats_int64s")
    if node.op_type in _CLASSIFIERS and key[0] == ML:
        return _labelled(node, _CLASSIFIERS[node.op_type])
    return [node]


def _texts(node: onnx.NodeProto, name: str) -> list[bytes]:
    return [s for a in node.attribute if a.name == name for s in a.strings]


def _copy(node: onnx.NodeProto, keep: Callable[[str], bool]) -> onnx.NodeProto:
    """The node with the attributes whose names are to be kept."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    copy.attribute.extend(a for a in node.attribute if keep(a.name))
    return copy


def _numbered(node: onnx.NodeProto, texts: str, integers: str) -> Sequence[onnx.NodeProto]:
    """Strings that an operator looks for in its input, as their numbers; all others are -1."""
    pool = _texts(node, texts)
    if not pool:
        return [node]
    words = list(dict.fromkeys(pool))
    numbers = {word: number for number, word in enumerate(words)}
    copy = _copy(node, lambda name: name != texts)
    copy.attribute.append(helper.make_attribute(integers, [numbers[word] for word in pool]))
    copy.input[0] = f"{node.output[0]}/numbers"
    lookup = _lookup(node, node.input[0], copy.input[0])
    lookup.attribute.extend(
        [
            helper.make_attribute("keys_strings", words),
            helper.make_attribute("values_int64s", range(len(words))),
            helper.make_attribute("default_int64", -1),
        ]
    )
    return [lookup, copy]


def _labelled(node: onnx.NodeProto, integers: str) -> Sequence[onnx.NodeProto]:
    """Classes whose labels are strings, as their numbers, of which the labels follow."""
    labels = _texts(node, "classlabels_strings")
    if not labels:
        return [node]
    numbers = range(len(labels))
    copy = _copy(node, lambda name: name not in ("classlabels_strings", integers))
    copy.attribute.append(helper.make_attribute(integers, numbers))
    if not node.output[0]:
        return [copy]
    copy.output[0] = f"{node.output[0]}/numbers"
    lookup = _lookup(node, copy.output[0], node.output[0])
    lookup.attribute.extend(
        [
            helper.make_attribute("keys_int64s", numbers),
            helper.make_attribute("values_strings", labels),
        ]
    )
    return [copy, lookup]


def _lookup(node: onnx.NodeProto, source: str, target: str) -> onnx.NodeProto:
    return helper.make_node("LabelEncoder", [source], [target], node.name, domain=ML)


def length_before(
    node: onnx.NodeProto, sequence: str, more: int
) -> tuple[Sequence[onnx.NodeProto], onnx.TensorProto]:
    """The nodes that stand for a SequenceLength of so many elements `more` than a sequence has, and their constant."""
    (result,) = node.output
    number = numpy_helper.from_array(np.array(more, np.int64), f"{result}/more")
    before = helper.make_node("SequenceLength", [sequence], [f"{result}/before"], node.name)
    return [before, helper.make_node("Add", [before.output[0], number.name], [result])], number
