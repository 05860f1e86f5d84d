"""State: which pairs are recognised, what is refused, and what becomes of a function."""

import pytest

from glowpy.core.elemkind import ElemKind
from glowpy.core.state_pairs import Declared, check_pairs, recognized_pairs
from glowpy.graph.parser import parse_module
from glowpy.graph.state import keep_state
from glowpy.graph.verifier import verify_module
from glowpy.support.errors import UserError

F32, I64 = ElemKind.F32, ElemKind.I64
PAST, PRESENT = (Declared(F32, ["batch", 12, f"{name}_length", 64]) for name in ("past", "present"))
HIDDEN = Declared(F32, [1, "batch", 64])

TEXT = """
module {
  symbol past 0..7
  placeholder %x : f32[1x4]
  placeholder %cache : f32[past x 4]
  placeholder %all : f32[past+1 x 4]
  placeholder %y : f32[1x4]
  function @main {
    %both = concat(%cache, %x) {axis=0} : f32[past+1 x 4]
    %sum = reduce_add(%both) {axes=[0]} : f32[1x4]
    save(%both, %all)
    save(%sum, %y)
  }
}
"""


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("past_key_values.0.key", "present.0.key"),
        ("past_key_values.11.decoder.value", "present.11.decoder.value"),
        ("past_key_values.3.key", "present_key_values.3.key"),
        ("past_key_0", "present_key_0"),
        ("past_0", "present_0"),
        ("past.4.value", "present.4.value"),
        ("cache_k_in", "cache_k_out"),
        ("cache_k_in_7", "cache_k_out_7"),
        ("in_cache0", "out_cache0"),
        ("h0", "hn"),
        ("initial_h", "Y_h"),
        ("c_0", "c_n"),
        ("h", "hn"),
        ("state", "stateN"),
        ("state", "state_out"),
        ("state", "new_state"),
        ("prev_state", "next_state"),
    ],
)
def test_names_that_exporters_give_are_recognised(name: str, output: str) -> None:
    outputs = {"logits": PRESENT, output: PRESENT}
    assert recognized_pairs({"input": PAST, name: PAST}, outputs) == {name: output}


def test_types_must_allow_a_pair() -> None:
    others = [
        Declared(I64, PRESENT.shape),
        Declared(F32, ["batch", 12, "all"]),
        Declared(F32, ["batch", 8, "all", 64]),
    ]
    for other in others:
        assert recognized_pairs({"past_0": PAST}, {"present_0": other}) == {}
    unknown = Declared(F32, None)
    assert recognized_pairs({"past_0": PAST}, {"present_0": unknown}) == {"past_0": "present_0"}
    assert recognized_pairs({"x": PAST, "h0": HIDDEN}, {"xn": HIDDEN}) == {}


def test_an_output_is_one_inputs_only() -> None:
    pairs = recognized_pairs({"h0": HIDDEN, "h": HIDDEN}, {"hn": HIDDEN})
    assert pairs == {"h0": "hn"}


def test_everything_that_is_wrong_with_pairs_is_said_at_once() -> None:
    inputs = {"x": Declared(F32, [1]), "past_0": PAST, "past_1": PAST, "h": HIDDEN}
    outputs = {"logits": HIDDEN, "present_0": PRESENT}
    pairs = {"past": "y", "past_0": "present_0", "past_1": "present_0", "h": "present_0"}
    with pytest.raises(UserError) as raised:
        check_pairs(pairs, inputs, outputs)
    assert [diagnostic.message for diagnostic in raised.value.diagnostics] == [
        "state: expected one of the inputs 'x', 'past_0', 'past_1', 'h', got 'past'",
        "state: expected one of the outputs 'logits', 'present_0', got 'y'",
        "state: 'present_0' is the output of 3 inputs",
        (
            "state: 'h' is f32[1 x batch x 64], which the output 'present_0', "
            "f32[batch x 12 x present_length x 64], cannot become"
        ),
    ]


def test_a_pair_becomes_one_variable() -> None:
    module = parse_module(TEXT)
    keep_state(module.main, {"cache": "all"})
    verify_module(module)
    assert str(module) == (
        """module {
  symbol past 0..7
  placeholder %x : f32[1x4]
  placeholder %y : f32[1x4]
  variable %cache : f32[past x 4] in f32[8x4]
  function @main {
    %both = concat(%cache, %x) {axis=0} : f32[past+1 x 4]
    %sum = reduce_add(%both) {axes=[0]} : f32[1x4]
    save(%both, %cache)
    save(%sum, %y)
  }
}
"""
    )
    assert str(parse_module(str(module))) == str(module)
    assert str(module.clone()) == str(module)
    f = module.main
    assert [p.name for p in (*f.inputs, *f.outputs)] == ["x", "y"]
    assert [v.name for v in f.variables] == ["cache"]
    assert module.storage("cache") is f.variables[0]


def test_an_input_that_is_an_output_of_the_same_name() -> None:
    module = parse_module(TEXT.replace("save(%both, %all)", "save(%sum, %x)"))
    keep_state(module.main, {"x": "x"})
    verify_module(module)
    assert [v.name for v in module.main.variables] == ["x"]
    module = parse_module(TEXT.replace("save(%both, %all)", "save(%sum, %x)"))
    with pytest.raises(UserError, match="state: 'x' is an output as well"):
        keep_state(module.main, {"x": "y"})


def test_what_cannot_be_kept_is_refused() -> None:
    with pytest.raises(UserError, match=r"'cache' is .*, expected a bound for every dimension"):
        keep_state(parse_module(TEXT.replace("0..7", "0..")).main, {"cache": "all"})
    other = TEXT.replace("f32[past x 4]", "f16[past x 4]").replace(
        "%both = concat(%cache", "%both = concat(%x"
    )
    other = other.replace("f32[past+1 x 4]", "f32[2x4]")
    with pytest.raises(UserError, match="cannot become"):
        keep_state(parse_module(other).main, {"cache": "all"})
