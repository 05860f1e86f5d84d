"""How much work optimizing is, in rules tried and passes run, which no busy machine changes: linear in the network."""

import numpy as np

from glowpy.backends.interpreter.backend import InterpreterBackend
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.engine import evaluate
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Node, Operand
from glowpy.opt.graph.fold_concat import FoldConcatPass
from glowpy.passes import PassContext
from glowpy.recipe import graph_recipe

WIDTH = 8
TYPE = Type(ElemKind.F32, (1, 4, WIDTH))


def weight(f: Function, *shape: int) -> Operand:
    return f.module.create_constant("w", np.ones(shape, np.float32))


def norm(f: Function, x: Node) -> Node:
    """Layer normalization in primitives, with a square as exporters write it."""
    centred = f.create_sub("centred", x, f.create_reduce_mean("mean", x, (2,)))
    two = f.create_splat("two", Type(ElemKind.F32, ()), 2.0)
    variance = f.create_reduce_mean("variance", f.create_pow("square", centred, two), (2,))
    scaled = f.create_div("scaled", centred, f.create_sqrt("deviation", variance))
    return f.create_add("shifted", f.create_mul("normed", scaled, weight(f, WIDTH)), weight(f, 1))


def layer(f: Function, x: Node) -> Node:
    """Attention of two heads and a residual, with the reshapes and transposes exporters write."""
    normed = norm(f, x)
    heads = []
    for shuffle in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)):
        product = f.create_mat_mul("product", normed, weight(f, WIDTH, WIDTH))
        split = f.create_reshape("split", TYPE.with_shape((1, 4, 2, WIDTH // 2)), product)
        heads.append(f.create_transpose("heads", split, shuffle))
    scores = f.create_softmax("scores", f.create_mat_mul("qk", heads[0], heads[1]), 3)
    mixed = f.create_transpose("back", f.create_mat_mul("mixed", scores, heads[2]), (0, 2, 1, 3))
    columns = f.create_transpose("columns", f.create_reshape("m", TYPE, mixed), (0, 2, 1))
    back = f.create_transpose("rows", f.create_relu("relu", columns), (0, 2, 1))
    return f.create_add("residual", x, back)


def effort(layers: int) -> tuple[int, PassContext]:
    """The number of nodes, and what the recipe did with them."""
    module = Module()
    x, y = module.create_placeholder("x", TYPE), module.create_placeholder("y", TYPE)
    f = module.create_function("main")
    node: Node = f.create_neg("first", x)
    for _ in range(layers):
        node = layer(f, node)
    f.create_save("save", node, y)
    ctx = PassContext(evaluate)
    nodes = f.num_nodes
    graph_recipe(InterpreterBackend()).run(f, ctx)
    return nodes, ctx


def test_optimizing_is_linear() -> None:
    nodes, single = effort(10)
    more, double = effort(20)
    assert more > 1.9 * nodes
    assert double.runs == single.runs
    assert double.tried.total() <= 2 * single.tried.total() * 1.05
    assert double.applied.total() <= 2 * single.applied.total() * 1.05


def test_a_node_is_tried_a_few_times_only() -> None:
    nodes, ctx = effort(10)
    assert ctx.runs["rewrite"] <= 6
    assert ctx.tried.total() <= 15 * nodes


def test_a_chain_of_concats_is_merged_at_once() -> None:
    module = Module()
    x = module.create_placeholder("x", TYPE)
    f = module.create_function("main")
    node: Node = f.create_concat("c", [x, x], 0)
    for _ in range(99):
        node = f.create_concat("c", [node, x], 0)
    f.create_save("save", node, module.create_placeholder("y", node.type))
    ctx = PassContext(evaluate)
    assert FoldConcatPass().run(f, ctx)
    assert (ctx.tried["fold-concat"], ctx.applied["fold-concat"]) == (101, 1)
    assert [len(node.inputs) for node in f.topological()] == [101, 2]
