"""What every reader of a format shares, used without one."""

from __future__ import annotations

import numpy as np
import pytest

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.engine import evaluate
from glowpy.graph.function import Module
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.computed import computed_slices, found_dims
from glowpy.importer.kit.importing import Importing, Scope
from glowpy.importer.kit.moves import channels_first, channels_last, slice_axis, vector
from glowpy.importer.kit.numbers import counted
from glowpy.importer.kit.values import Value
from glowpy.importer.kit.windows import same_pads
from glowpy.importer.needs import ValueNeededError
from glowpy.support.loc import Loc
from glowpy.support.symbolic import symbol


def importing(loc: str = "a.layers") -> Importing:
    return Importing("first", Loc(loc), Scope(Module().create_function("main")))


def computed(n: Importing, array: Array) -> NodeValue:
    """An operand that is no constant: twice the half of it."""
    half = n.operand(Tensor.of(array // 2))
    return n.f.create_add(n.name, half, half).result


def value_of(value: Value) -> Array:
    return value.array if isinstance(value, Tensor) else evaluate([value])[0].array


def test_known_tensors_move_without_nodes() -> None:
    n = importing()
    image = Tensor.of(np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4))
    moved = channels_last(n, image)
    assert moved.type.shape == (1, 3, 4, 2)
    assert n.f.num_nodes == 0
    np.testing.assert_array_equal(value_of(channels_first(n, moved)), image.array)


def test_nodes_are_named_after_what_is_imported() -> None:
    n = importing()
    rows = computed(n, np.arange(0, 12, 2))
    part = slice_axis(n, rows, 0, 1, 2, 2)
    assert isinstance(part, NodeValue)
    assert part.node is not None
    assert part.node.name.startswith("first")
    np.testing.assert_array_equal(value_of(part), [2, 6])


def test_numbers_count_up_to_an_extent_that_is_open() -> None:
    n = importing()
    places = counted(n, symbol("rows", 1, 8))
    assert places.known is None
    assert str(places.value.type) == "i64[rows]"
    assert counted(n, 3).known is not None
    assert n.f.num_nodes == 2


def test_slices_end_where_the_network_says() -> None:
    n = importing()
    start = n.f.module.create_placeholder("start", Type(ElemKind.I64, (1,))).value
    part = computed_slices(n, vector(range(6)), start, vector([5]), [0], None)
    assert str(part.type.shape[0]).startswith("first_count")


def test_what_has_no_bound_is_named_by_the_place_of_the_operand() -> None:
    n = importing()
    parameter = n.f.module.create_placeholder("size", Type(ElemKind.I64, (1,)))
    with pytest.raises(ValueNeededError, match="'input 1 of first' must be known") as caught:
        found_dims(n, parameter.value, 1)
    assert caught.value.inputs == ("size",)
    assert caught.value.diagnostics[0].loc == n.loc


@pytest.mark.parametrize(("upper", "pads"), [(True, (0, 1, 1, 1)), (False, (1, 1, 0, 1))])
def test_pads_keep_what_strides_leave(upper: bool, pads: tuple[int, ...]) -> None:
    assert same_pads((4, 5), (3, 3), (2, 2), (1, 1), upper=upper) == pads
