"""What is written once over schemas holds for every node class."""

import pytest

from glowpy.backends.cpu.backend import CpuBackend
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.parser import parse_module
from glowpy.graph.printer import print_module
from tests.unit.samples import ALL_NODES, TYPE, attrs_of, node_of


@pytest.fixture
def f() -> Function:
    return Module().create_function("main")


@pytest.fixture
def values(f: Function) -> list[NodeValue]:
    return [f.module.create_placeholder(f"x{i}", TYPE).value for i in range(8)]


@pytest.fixture
def predicate(f: Function) -> NodeValue:
    return f.module.create_placeholder("p", Type(ElemKind.BOOL, ())).value


every_node = pytest.mark.parametrize("cls", ALL_NODES, ids=lambda cls: cls.__name__)


@every_node
def test_properties_name_operands_and_attributes(cls: type[Node], values: list[NodeValue]) -> None:
    node = node_of(cls, values)
    for index, name in enumerate(cls.SCHEMA.inputs):
        operand = node.inputs[index] if cls.SCHEMA.variadic else getattr(node, name)
        assert operand is values[index]
    for name, value in attrs_of(cls.SCHEMA.attrs).items():
        assert getattr(node, name) == value
    for name, result in zip(cls.SCHEMA.results, node.results, strict=True):
        assert getattr(node, name) is result
    assert cls.__doc__


@every_node
def test_equal_nodes_have_equal_keys(
    cls: type[Node], values: list[NodeValue], predicate: NodeValue
) -> None:
    node, twin = node_of(cls, values), node_of(cls, values, "other_name")
    assert node.is_equal(twin)
    assert hash(node.structural_key()) == hash(twin.structural_key())
    different = [node_of(cls, values, predicate=predicate)]
    if cls.SCHEMA.attrs:
        different.append(node_of(cls, values, variant=1))
    if cls.SCHEMA.inputs:
        different.append(node_of(cls, [values[-1], *values]))
    for other in different:
        assert not node.is_equal(other)
    assert not node.is_equal(node_of(ALL_NODES[ALL_NODES[0] is cls], values))


@every_node
def test_a_clone_is_the_same_on_other_operands(
    cls: type[Node], values: list[NodeValue], predicate: NodeValue
) -> None:
    node = node_of(cls, values, predicate=predicate)
    assert node.clone("n", node.inputs, node.predicate).is_equal(node)
    moved = node.clone("n", list(reversed(node.inputs)), None)
    assert moved.inputs == tuple(reversed(node.inputs))
    assert moved.predicate is None
    assert moved.attrs == node.attrs
    assert moved.attrs is not node.attrs
    assert [r.type for r in moved.results] == [r.type for r in node.results]
    assert all(user is not moved for value in values for user in value.users)


@every_node
@pytest.mark.parametrize("variant", [0, 1])
def test_text_reads_back(
    cls: type[Node],
    variant: int,
    f: Function,
    values: list[NodeValue],
    predicate: NodeValue,
) -> None:
    for condition in (None, predicate):
        name = f.module.names.take(cls.SCHEMA.mnemonic)
        f.add(node_of(cls, values, name, variant=variant, predicate=condition))
    text = print_module(f.module)
    assert print_module(parse_module(text, extra=CpuBackend.nodes)) == text
