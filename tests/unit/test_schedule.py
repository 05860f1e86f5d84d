"""The schedule is an order of execution, and keeps little memory alive."""

import itertools
import math
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from glowpy.backends.cpu.nodes_gen import create_cpu_matmul, create_cpu_pack_matrix
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Quant, Type
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Node
from glowpy.schedule import schedule
from tests.unit.networks import RandomNetwork


def peak(order: list[Node]) -> int:
    """Bytes alive at the worst moment if a value lives from its node to its last user."""
    place = {node: index for index, node in enumerate(order)}
    worst = 0
    for index in place.values():
        alive = 0
        for node, start in place.items():
            last = max((place[user] for r in node.results for user in r.users), default=start)
            if start <= index <= last:
                alive += sum(result.type.room for result in node.results)
        worst = max(worst, alive)
    return worst


def branches(count: int) -> Function:
    """The sum of `count` branches, each a large value that is reduced to a small one."""
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(ElemKind.F32, (1, 1)))
    wide = Type(ElemKind.F32, (100, 100))
    large: list[Node] = [f.create_broadcast("large", wide, x) for _ in range(count)]
    small = [f.create_reduce_add("small", node, (0, 1)) for node in large]
    total: Node = small[0]
    for node in small[1:]:
        total = f.create_add("total", total, node)
    f.create_save("s", total, module.create_placeholder("out", total.type))
    return f


def test_branches_are_finished_one_by_one() -> None:
    f = branches(8)
    order = schedule(f)
    naive = f.topological()
    assert peak(naive) >= 8 * 40_000
    assert peak(order) <= 40_000 + 9 * 4


def test_the_hungry_operand_comes_first() -> None:
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(ElemKind.F32, (1, 1)))
    wide = Type(ElemKind.F32, (10, 10))
    light = f.create_broadcast("light", wide, x)
    heavy = f.create_reduce_add(
        "heavy", f.create_broadcast("huge", Type(ElemKind.F32, (100, 100)), x), (0, 1)
    )
    total = f.create_add("sum", light, heavy)
    f.create_save("s", total, module.create_placeholder("out", total.type))
    names = [node.name for node in schedule(f)]
    assert names == ["huge", "heavy", "light", "sum", "s"]


def test_what_several_nodes_read_comes_before_the_hungry() -> None:
    """Such as a mask, which is added to the scores of every layer at once, and not after the scores have waited."""
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(ElemKind.F32, (8, 8)))
    given = module.create_placeholder("given", Type(ElemKind.F32, (1, 8)))
    mask: Node = f.create_neg("mask", f.create_exp("raised", given))
    value: Node = f.create_relu("value", x)
    for layer in range(2):
        scores = f.create_mat_mul(f"scores{layer}", value, f.create_exp(f"keys{layer}", value))
        value = f.create_add(f"masked{layer}", scores, mask)
    f.create_save("s", value, module.create_placeholder("out", value.results[0].type))
    names = [node.name for node in schedule(f)]
    for layer in range(2):
        assert names.index(f"masked{layer}") == names.index(f"scores{layer}") + 1


def tree(rng: random.Random) -> Function:
    """A tree of at most eleven concats and slices, in which every value has one user, over splats of random sizes."""
    module = Module()
    f = module.create_function("main")

    def part(value: Node) -> Node:
        count = rng.randint(1, min(math.prod(value.type.extents), 40))
        return f.create_slice("part", Type(ElemKind.F32, (count,)), value, (0,), (1,))

    def grow(depth: int) -> Node:
        if depth == 0 or rng.random() < 0.2:
            return part(f.create_splat("leaf", Type(ElemKind.F32, (rng.randint(1, 200),)), 0.0))
        operands = [grow(depth - 1) for _ in range(2)]
        return part(f.create_concat("join", operands, 0))

    root = grow(3)
    f.create_save("s", root, module.create_placeholder("out", root.type))
    return f


def least_peak(node: Node) -> int:
    """Bytes alive at the worst moment in the best of all orders that finish each operand before they begin the next."""
    operands = [value.node for value in node.inputs if value.node is not None]
    best = []
    for order in itertools.permutations(operands):
        held = worst = 0
        for operand in order:
            worst = max(worst, held + least_peak(operand))
            held += operand.type.room
        best.append(max(worst, held + node.type.room))
    return min(best)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.randoms(use_true_random=False))
def test_no_order_of_operands_needs_less_memory_in_a_tree(rng: random.Random) -> None:
    f = tree(rng)
    order = schedule(f)
    assert peak(order) == least_peak(order[-2])


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False))
def test_it_is_an_order_of_execution(rng: random.Random) -> None:
    f = RandomNetwork(rng).module.main
    order = schedule(f)
    assert sorted(map(id, order)) == sorted(map(id, f.nodes))
    done: set[Node] = set()
    for node in order:
        assert all(value.node is None or value.node in done for _, value in node.operands())
        done.add(node)
    assert order == schedule(f)


def test_a_placeholder_is_read_before_it_is_saved() -> None:
    module = Module()
    f = module.create_function("main")
    state = module.create_placeholder("state", Type(ElemKind.F32, (4,)))
    out = module.create_placeholder("out", Type(ElemKind.F32, (4,)))
    f.create_save("update", f.create_exp("next", state), state)
    f.create_save("s", f.create_neg("read", state), out)
    names = [node.name for node in schedule(f)]
    assert names.index("read") < names.index("update")


def test_a_result_that_nobody_uses_does_not_bring_its_node_forward() -> None:
    module = Module()
    f = module.create_function("main")
    image = module.create_placeholder("image", Type(ElemKind.F32, (1, 2, 2, 1)))
    args = ((2, 2), (2, 2), (0, 0, 0, 0), (1, 1), False)
    late = f.create_max_pool_with_argmax("late", image, *args)
    early = f.create_exp("early", image)
    f.create_save("s", early, module.create_placeholder("a", early.type))
    f.create_save("s", late, module.create_placeholder("b", late.type))
    assert [node.name for node in schedule(f)[:2]] == ["early", "late"]


def test_small_operands_come_before_a_product() -> None:
    """The scales of columns, computed, do not come between a product and its multiplication with them."""
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(ElemKind.F32, (1, 64)))
    row = module.create_placeholder("row", Type(ElemKind.F32, (64,)))
    weights = module.create_placeholder("w", Type(ElemKind.F32, (64, 64)))
    packed = create_cpu_pack_matrix(f, "packed", Type(ElemKind.F32, (4, 64, 16)), weights, block=16)
    product = create_cpu_matmul(
        f, "product", x.type, x, packed, tile_pixels=1, tile_vectors=1, slab=1, fetch=0
    )
    scales = f.create_mul("scales", row, row)
    total = f.create_mul("total", f.create_relu("relu", product), scales)
    f.create_save("s", total, module.create_placeholder("out", total.type))
    order = schedule(f)
    assert order.index(total) == order.index(product) + 2


def test_what_widens_is_computed_just_before_its_reader() -> None:
    """Such as the floats of 8-bit integers, so that a residual sum is part of the product's loop."""
    module = Module()
    f = module.create_function("main")
    quantized = Type(ElemKind.U8, (64, 64), Quant((0.5,), (0,)))
    floats = Type(ElemKind.F32, (64, 64))
    offset = module.create_placeholder("offset", Type(ElemKind.U8, ()))
    x = module.create_placeholder("x", floats)
    lowest = module.create_placeholder("lowest", Type(ElemKind.F32, ()))
    images = [
        f.create_saturate(f"image{i}", quantized, f.create_mat_mul(f"product{i}", x, x), lowest)
        for i in range(2)
    ]
    steps = [f.create_subtract_offset(f"steps{i}", floats, images[i], offset) for i in range(2)]
    negatives = [f.create_neg(f"negative{i}", steps[i]) for i in range(2)]
    total = f.create_saturate("total", quantized, f.create_add("sum", *negatives), lowest)
    f.create_save("s", total, module.create_placeholder("out", quantized))
    assert [node.name for node in schedule(f)] == [
        "product0", "image0", "product1", "image1",
        "steps0", "negative0", "steps1", "negative1", "sum", "total", "s",
    ]  # fmt: skip
