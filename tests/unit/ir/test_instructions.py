"""What is written once over schemas holds for every instruction class."""

import pytest

from glowpy.backends.cpu.backend import CpuBackend
from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import Access
from glowpy.core.type import Type
from glowpy.ir.inst import Instruction, ValueInstruction
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.parser import parse_irfunction
from glowpy.ir.printer import print_irfunction
from glowpy.ir.value import Mutability, Value
from glowpy.support.errors import InternalError
from tests.unit.samples import ALL_INSTS, TYPE, attrs_of, inst_attrs, inst_of

every_inst = pytest.mark.parametrize("cls", ALL_INSTS, ids=lambda cls: cls.__name__)


@pytest.fixture
def f() -> IRFunction:
    return IRFunction("main")


@pytest.fixture
def values(f: IRFunction) -> list[Value]:
    return [f.create_weight(f"w{i}", TYPE, Mutability.MUTABLE) for i in range(11)]


@pytest.fixture
def predicate(f: IRFunction) -> Value:
    return f.create_weight("p", Type(ElemKind.BOOL, ()), Mutability.MUTABLE)


@every_inst
def test_operands_have_the_names_and_accesses_of_the_schema(
    cls: type[Instruction], f: IRFunction, values: list[Value]
) -> None:
    inst = inst_of(f, cls, values)
    specs = cls.SCHEMA.operands_of(len(inst.operands), inst.attrs)
    for spec, ref, value in zip(specs, inst.operands, values, strict=False):
        assert (ref.name, ref.access, ref.value) == (spec.name, spec.access, value)
        assert cls.SCHEMA.variadic or getattr(inst, spec.name) is value
    order = [Access.OUT, Access.INOUT, Access.IN, Access.SCRATCH]
    places = [order.index(spec.access) for spec in cls.SCHEMA.operands]
    assert places == sorted(places)
    for name, attr in inst_attrs(cls).items():
        assert getattr(inst, name) == attr


@every_inst
def test_equal_instructions_have_equal_keys(
    cls: type[Instruction], f: IRFunction, values: list[Value], predicate: Value
) -> None:
    inst, twin = inst_of(f, cls, values), inst_of(f, cls, values)
    assert inst.is_equal(twin)
    assert hash(inst.structural_key()) == hash(twin.structural_key())
    different = [] if issubclass(cls, ValueInstruction) else [predicate]
    for other in different:
        assert not inst.is_equal(inst_of(f, cls, values, predicate=other))
    if cls.SCHEMA.attrs:
        assert not inst.is_equal(inst_of(f, cls, values, variant=1))
    if cls.SCHEMA.operands:
        assert not inst.is_equal(inst_of(f, cls, [values[-1], *values]))


@every_inst
def test_values_are_replaced_in_operands_and_predicate(
    cls: type[Instruction], f: IRFunction, values: list[Value], predicate: Value
) -> None:
    inst = inst_of(f, cls, values, predicate=predicate)
    for ref in inst.operands:
        inst.replace_value(ref.value, values[-1])
    assert all(ref.value is values[-1] for ref in inst.operands)
    if not issubclass(cls, ValueInstruction):
        assert list(inst.reads())[-1] is predicate
        inst.replace_value(predicate, values[0])
        assert inst.predicate is values[0]


@every_inst
def test_text_reads_back(
    cls: type[Instruction], f: IRFunction, values: list[Value], predicate: Value
) -> None:
    for variant, condition in ((0, None), (1, predicate)):
        inst_of(f, cls, values, variant=variant, predicate=condition)
    text = print_irfunction(f)
    assert print_irfunction(parse_irfunction(text, extra=CpuBackend.instructions)) == text


def test_a_wrong_number_of_operands_is_a_bug(f: IRFunction, values: list[Value]) -> None:
    cls = next(cls for cls in ALL_INSTS if len(cls.SCHEMA.operands) > 1)
    with pytest.raises(InternalError, match="operands, got 1"):
        cls(values[:1], attrs_of(cls.SCHEMA.attrs))
