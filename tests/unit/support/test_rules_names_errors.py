"""Rule tables, unique names, locations and errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glowpy.support.errors import (
    Diagnostic,
    InternalError,
    LoadError,
    UnsupportedError,
    UserError,
    VerifyError,
)
from glowpy.support.loc import UNKNOWN, Loc
from glowpy.support.names import UniqueNames, legal_name
from glowpy.support.rules import Rules


class Cat: ...


class Dog: ...


def test_rules_answer_by_class() -> None:
    speak: Rules[object] = Rules("speak")  # type: ignore[type-var]

    @speak(Cat)
    def _cat() -> str:
        return "meow"

    assert speak[Cat] is _cat
    assert speak.get(Dog) is None
    assert Cat in speak
    assert Dog not in speak
    assert speak.missing([Cat, Dog]) == [Dog]
    with pytest.raises(
        InternalError, match=r"no 'speak' rule for Dog\nDeclare one with @speak in glowpy/ops/"
    ):
        speak[Dog]
    with pytest.raises(InternalError, match="%rex: no 'speak' rule for Dog"):
        speak.required(Dog, "%rex")
    with pytest.raises(InternalError, match="second 'speak' rule for Cat"):
        speak(Cat)(_cat)


@given(st.lists(st.text(max_size=6), max_size=20))
def test_names_are_legal_and_unique(texts: list[str]) -> None:
    names = UniqueNames()
    taken = [names.take(text) for text in texts]
    assert len(set(taken)) == len(taken)
    assert all(text == legal_name(text) for text in taken)


def test_names_count_up_and_can_be_released() -> None:
    names = UniqueNames()
    assert [names.take("conv") for _ in range(3)] == ["conv", "conv_1", "conv_2"]
    assert names.take("conv_1") == "conv_3"
    names.release("conv")
    assert names.take("conv") == "conv"


@pytest.mark.parametrize(
    ("name", "legal"),
    [("a/b:0", "a_b_0"), ("1", "v1"), ("", "v"), ("_x_", "x"), ("größe", "gr_e")],
)
def test_legal_name(name: str, legal: str) -> None:
    assert legal_name(name) == legal


@pytest.mark.parametrize(
    ("loc", "text"),
    [
        (UNKNOWN, ""),
        (Loc("m.onnx", node="Conv_0", index=3), "m.onnx: node 'Conv_0' (#3)"),
        (Loc("n.glow", 3, 5), "n.glow:3:5"),
        (Loc(node="add"), "node 'add'"),
    ],
)
def test_locations_print(loc: Loc, text: str) -> None:
    assert str(loc) == text
    assert bool(loc) == bool(text)


def test_a_diagnostic_prints_location_context_and_remedy() -> None:
    diagnostic = Diagnostic("expected a, got b", Loc("n.glow", 1, 2), "x y\n  ^", "write a")
    assert str(diagnostic) == "n.glow:1:2: expected a, got b\n  x y\n    ^\nnote: write a"


def test_an_error_of_several_diagnostics_prints_all() -> None:
    error = VerifyError.of([Diagnostic("one"), Diagnostic("two")])
    assert isinstance(error, VerifyError)
    assert str(error) == "one\ntwo"


def test_the_users_mistakes_are_not_ours() -> None:
    assert all(issubclass(cls, UserError) for cls in (LoadError, VerifyError, UnsupportedError))
    assert not issubclass(InternalError, UserError)
    assert "bug in glowpy" in str(InternalError("broken"))
