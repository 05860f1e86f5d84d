"""The schedule is an order of execution, and keeps little memory alive."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
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
        for node, made in place.items():
            last = max((place[user] for r in node.results for user in r.users), default=made)
            if made <= index <= last:
                alive += sum(result.type.size for result in node.results)
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
