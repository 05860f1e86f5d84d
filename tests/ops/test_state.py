"""Variables: a network goes on where its last run ended, and computes what one that is given everything again does."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import pytest

import glowpy
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type, parse_type
from glowpy.engine import compilation
from glowpy.graph.function import Function, Module
from glowpy.graph.node import NodeValue, Placeholder
from glowpy.graph.state import keep_state
from glowpy.ir.insts_gen import InsertTensorInst
from glowpy.ir.value import WeightVar
from glowpy.runtime.compiled import CompiledFunction
from glowpy.runtime.state import State
from glowpy.support.errors import UserError
from glowpy.support.symbolic import symbol

SYMBOLS = {"b": symbol("b", 1, 3), "seq": symbol("seq", 1, 5), "past": symbol("past", 0, 60)}
PAIRS = {f"past_{c}{layer}": f"present_{c}{layer}" for layer in range(2) for c in "kv"}
RNG = np.random.default_rng(0)
WEIGHTS = {c: RNG.standard_normal((2, 16, 16)).astype(np.float32) / np.float32(4.0) for c in "qkvo"}
BACKENDS = ["cpu", "interpreter"]


def _type(text: str) -> Type:
    return parse_type(text, SYMBOLS)


def _layer(f: Function, x: NodeValue, past: Mapping[str, Placeholder], layer: int) -> NodeValue:
    """Attention to all that was seen, with two heads; adds what it has computed of the keys and values."""
    heads: dict[str, NodeValue] = {}
    for c in "qkv":
        weights = f.module.create_constant("w", WEIGHTS[c][layer])
        rows = f.create_mat_mul(f"{c}_rows", x, weights)
        parts = f.create_reshape(f"{c}_parts", _type("f32[b x seq x 2 x 8]"), rows)
        heads[c] = f.create_transpose(f"{c}_heads", parts, (0, 2, 1, 3)).result
    for c in "kv":
        heads[c] = f.create_concat(
            f"all_{c}",
            [past[f"past_{c}{layer}"], heads[c]],
            2,
            result_type=_type("f32[b x 2 x past+seq x 8]"),
        ).result
        output = f.module.create_placeholder(f"present_{c}{layer}", heads[c].type)
        f.create_save("save", heads[c], output)
    keys = f.create_transpose("keys", heads["k"], (0, 1, 3, 2))
    chances = f.create_softmax("chances", f.create_mat_mul("scores", heads["q"], keys), 3)
    sums = f.create_transpose("sums", f.create_mat_mul("mix", chances, heads["v"]), (0, 2, 1, 3))
    joined = f.create_reshape("joined", x.type, sums)
    product = f.create_mat_mul(
        "product", joined, f.module.create_constant("wo", WEIGHTS["o"][layer])
    )
    return f.create_add("sum", x, product).result


@cache
def decoder() -> Module:
    """Two layers of attention with a cache, as exporters write it."""
    module = Module()
    x = module.create_placeholder("x", _type("f32[b x seq x 16]"))
    cache_type = _type("f32[b x 2 x past x 8]")
    past = {name: module.create_placeholder(name, cache_type) for name in PAIRS}
    f = module.create_function("main")
    value = x.value
    for layer in range(2):
        value = _layer(f, value, past, layer)
    f.create_save("save", value, module.create_placeholder("y", value.type))
    return module


@cache
def stateless() -> CompiledFunction:
    """What is given its past, and gives it back."""
    return glowpy.compile(decoder(), "interpreter")


@cache
def stateful(backend: str) -> CompiledFunction:
    """What keeps its past."""
    module = decoder().clone()
    keep_state(module.main, PAIRS)
    return glowpy.compile(module, backend)


class Steps:
    """The stateless network, run step by step."""

    def __init__(self, batch: int) -> None:
        self.past = {name: np.zeros((batch, 2, 0, 8), np.float32) for name in PAIRS}

    def run(self, x: Array) -> Array:
        """The output for a further part of the sequence."""
        outputs = stateless()({"x": x, **self.past})
        self.past = {name: outputs[output] for name, output in PAIRS.items()}
        return outputs["y"]


def _x(batch: int, length: int) -> Array:
    return RNG.standard_normal((batch, length, 16)).astype(np.float32)


def _same(state: State, steps: Steps) -> None:
    for name, array in steps.past.items():
        assert state.shape(name) == array.shape
        np.testing.assert_allclose(state[name], array, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("batch", [1, 3])
def test_a_run_goes_on_where_the_last_one_ended(backend: str, batch: int) -> None:
    network, steps = stateful(backend), Steps(batch)
    state = network.state()
    assert [*network.inputs] == ["x"]
    assert [*network.outputs] == ["y"]
    for length in (4, 1, 1, 5, 2, 1):
        x = _x(batch, length)
        outputs = network({"x": x}, state=state)
        np.testing.assert_allclose(outputs["y"], steps.run(x), rtol=1e-4, atol=1e-5)
    _same(state, steps)


@pytest.mark.parametrize("backend", BACKENDS)
def test_states_do_not_share_what_they_hold_and_begin_again_after_a_reset(backend: str) -> None:
    network = stateful(backend)
    states, all_steps = [network.state(), network.state()], [Steps(2), Steps(1)]
    for length in (2, 3):
        for state, steps, batch in zip(states, all_steps, (2, 1), strict=True):
            x = _x(batch, length)
            y = network({"x": x}, state=state)["y"]
            np.testing.assert_allclose(y, steps.run(x), rtol=1e-4, atol=1e-5)
    states[0].reset()
    assert states[0].shape("past_k0") == (None, 2, 0, 8)
    x, steps = _x(3, 2), Steps(3)  # even of another batch
    y = network({"x": x}, state=states[0])["y"]
    np.testing.assert_allclose(y, steps.run(x), rtol=1e-4, atol=1e-5)
    _same(states[1], all_steps[1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_instance_has_a_state_of_its_own(backend: str) -> None:
    network, steps = stateful(backend), Steps(1)
    instance, other = network.instance(b=1, seq=2), network.instance(b=2, seq=1)
    for _ in range(3):
        x = _x(1, 2)
        instance.write("x", x)
        instance.run()
        np.testing.assert_allclose(instance["y"], steps.run(x), rtol=1e-4, atol=1e-5)
    _same(instance.state, steps)
    assert other.state.shape("past_v1") == (None, 2, 0, 8)
    instance.reset()
    instance.write("x", x)
    instance.run()
    np.testing.assert_allclose(instance["y"], Steps(1).run(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_state_holds_can_be_restored(backend: str) -> None:
    network, steps = stateful(backend), Steps(2)
    state, later = network.state(), network.state()
    x = _x(2, 5)
    network({"x": x}, state=state)
    steps.run(x)
    for name, array in state.contents().items():
        later[name] = array
    x = _x(2, 1)
    y = network({"x": x}, state=later)["y"]
    np.testing.assert_allclose(y, steps.run(x), rtol=1e-4, atol=1e-5)
    _same(later, steps)


def test_no_layer_copies_its_cache() -> None:
    """Only what is new is inserted into what is kept."""
    module = decoder().clone()
    keep_state(module.main, PAIRS)
    ir = compilation(module).ir
    stores = [
        inst
        for inst in ir.instructions
        if any(isinstance(v.base, WeightVar) and v.base.name in PAIRS for v in inst.writes())
    ]
    assert len(stores) == 4
    for inst in stores:
        assert isinstance(inst, InsertTensorInst)
        assert inst.input.type == _type("f32[b x 2 x seq x 8]")
    assert ir.weights["past_k0"].type == _type("f32[3x2x65x8]")


def test_a_state_that_is_full_says_so() -> None:
    network = stateful("interpreter")
    state = network.state()
    state["past_k0"] = np.zeros((1, 2, 60, 8), np.float32)
    with pytest.raises(UserError, match=r"'past_v0': expected the shape"):
        network({"x": _x(1, 1)}, state=state)  # the others hold nothing
    for name in PAIRS:
        state[name] = np.zeros((1, 2, 60, 8), np.float32)
    network({"x": _x(1, 1)}, state=state)
    with pytest.raises(
        UserError, match=r"the state 'past_k0' is full: expected at most 60 .* got 61"
    ):
        network({"x": _x(1, 1)}, state=state)
    with pytest.raises(UserError, match="is full"):
        state["past_k0"] = np.zeros((1, 2, 61, 8), np.float32)
    with pytest.raises(UserError, match=r"'past_k0': expected an array of type .*, got float32"):
        state["past_k0"] = np.zeros((1, 2, 3, 9), np.float32)
    with pytest.raises(UserError, match=r"'past_k0': expected an array of type .*, got float32"):
        state["past_k0"] = np.zeros((1, 2, 3, 7), np.float32)
    instance = network.instance(b=1, seq=5)
    for _ in range(13):
        instance.run()
    with pytest.raises(UserError, match="'past_k0' is full"):
        instance.run()


def test_a_call_without_the_state_is_refused() -> None:
    network = stateful("interpreter")
    with pytest.raises(UserError, match="expected the variables"):
        network({"x": _x(1, 1)})
    with pytest.raises(UserError, match="expected a state of this network"):
        network({"x": _x(1, 1)}, state=stateless().state())
    with pytest.raises(UserError, match="expected a state of this network"):
        network({"x": _x(1, 1)}, state={})  # type: ignore[arg-type]
    state = network.state()
    with pytest.raises(UserError, match="expected one of the variables 'past_k0'"):
        state.shape("y")
    with pytest.raises(UserError, match="expected an array of type f32"):
        state["past_k0"] = np.zeros((1, 2, 3), np.float32)
    with pytest.raises(UserError, match="expected the extent of 'seq'"):
        network.instance(b=1)
    with pytest.raises(UserError, match=r"expected 'seq' in 1\.\.5, got 6"):
        network.instance(b=1, seq=6)
    with pytest.raises(UserError, match=r"expected a whole number for 'seq', got 2\.5"):
        network.instance(b=1, seq=2.5)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"expected the extents of .*, got 'length'"):
        network.instance(b=1, length=1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_instance_whose_state_contradicts_itself_is_refused_until_it_agrees(
    backend: str,
) -> None:
    instance, steps = stateful(backend).instance(b=1, seq=1), Steps(1)
    x = _x(1, 1)
    instance.write("x", x)
    instance.run()
    steps.run(x)
    kept = instance.state["past_v0"].copy()
    instance.state["past_v0"] = np.zeros((1, 2, 7, 8), np.float32)
    for _ in range(2):
        with pytest.raises(UserError, match="expected the shape"):
            instance.run()
    instance.state["past_v0"] = kept
    instance.run()
    np.testing.assert_allclose(instance["y"], steps.run(x), rtol=1e-4, atol=1e-5)


def test_an_instance_takes_no_state_of_another_network() -> None:
    with pytest.raises(UserError, match="expected a state of this network"):
        stateful("interpreter").instance(stateless().state(), b=1, seq=1)


def _kept_early() -> Module:
    """What is kept is written long before the input is read for the last time."""
    module, type = Module(), Type(ElemKind.F32, (64,))
    x, kept, last, following, y = (
        module.create_placeholder(name, type) for name in ("x", "h", "last", "next", "y")
    )
    f = module.create_function("main")
    f.create_save("save", f.create_relu("before", kept), last)
    powers = f.create_exp("powers", x)
    f.create_save("save", powers, following)
    f.create_save("save", f.create_add("sum", x, f.create_reduce_add("total", powers, (0,))), y)
    keep_state(f, {"h": "next"})
    return module


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_input_may_lie_in_the_state(backend: str) -> None:
    network = glowpy.compile(_kept_early(), backend)
    for memory in ("what is kept", "its array"):
        state = network.state()
        x = state["h"] if memory == "what is kept" else state.buffers["h"]
        np.testing.assert_array_equal(network({"x": x}, state=state)["y"], np.full(64, 64.0))
    instance = network.instance()
    with pytest.raises(UserError, match="'x': expected memory of its own, got some of a variable"):
        instance.bind("x", instance.state["h"])


def _masked() -> Module:
    """The cache as an input, and a mask that says how long it is as well."""
    module = Module()
    x = module.create_placeholder("x", _type("f32[seq x 4]"))
    mask = module.create_placeholder("mask", _type("f32[past+seq]"))
    past = module.create_placeholder("past", _type("f32[past x 4]"))
    f = module.create_function("main")
    both = f.create_concat("both", [past, x], 0, result_type=_type("f32[past+seq x 4]"))
    f.create_save("save", both, module.create_placeholder("present", both.type))
    row = f.create_reshape("row", Type(ElemKind.F32, (1, mask.type.shape[0])), mask)
    total = f.create_mat_mul("total", row, both)
    f.create_save("save", total, module.create_placeholder("y", total.type))
    keep_state(f, {"past": "present"})
    return module


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_input_that_says_how_much_is_kept_must_agree(backend: str) -> None:
    network = glowpy.compile(_masked(), backend)
    state, x = network.state(), np.ones((2, 4), np.float32)
    with pytest.raises(UserError, match=r"'mask': expected the shape \[past\+seq\], got \[3\]"):
        network({"x": x, "mask": np.ones(3, np.float32)}, state=state)
    for count in (2, 4, 6):
        y = network({"x": x, "mask": np.ones(count, np.float32)}, state=state)["y"]
        np.testing.assert_array_equal(y, np.full((1, 4), count, np.float32))
    instance = network.instance(seq=1)
    for count in (1, 2, 3):
        assert instance["mask"].shape == (count,)
        instance["mask"][...] = 1
        instance["x"][...] = 2
        instance.run()
        np.testing.assert_array_equal(instance["y"], np.full((1, 4), 2 * count, np.float32))
    with pytest.raises(UserError, match="expected a port of one shape to bind"):
        instance.bind("mask", np.ones(4, np.float32))


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_output_may_become_smaller_as_a_variable_grows(backend: str) -> None:
    module = Module()
    x = module.create_placeholder("x", _type("f32[1 x 4]"))
    past = module.create_placeholder("past", _type("f32[past x 4]"))
    table = np.arange(256, dtype=np.float32).reshape(64, 4)
    f = module.create_function("main")
    both = f.create_concat("both", [past, x], 0, result_type=_type("f32[past+1 x 4]"))
    constant = module.create_constant("table", table)
    rest = f.create_slice("rest", _type("f32[64-past x 4]"), constant, (SYMBOLS["past"], 0), (1, 1))
    for name, value in {"present": both, "y": rest}.items():
        f.create_save("save", value, module.create_placeholder(name, value.type))
    keep_state(f, {"past": "present"})
    instance = glowpy.compile(module, backend).instance()
    for count in range(3):
        instance.run()
        np.testing.assert_array_equal(instance["y"], table[count:])


def _recurrent() -> Module:
    """A hidden state that is replaced, one that is rotated within itself, and one that is only read."""
    module = Module()
    x = module.create_placeholder("x", _type("f32[b x 4]"))
    h, window = (module.create_placeholder(n, _type("f32[b x 4]")) for n in ("h", "window"))
    f = module.create_function("main")
    total = f.create_add("total", f.create_mul("half", h, h), x)
    older = f.create_slice("older", _type("f32[b x 3]"), window, (0, 1), (1, 1))
    newest = f.create_slice("newest", _type("f32[b x 1]"), total, (0, 0), (1, 1))
    rotated = f.create_concat("rotated", [older, newest], 1)
    before = f.create_add("before", h, window)
    for name, value in {"h_out": total, "window_out": rotated, "y": before}.items():
        f.create_save("save", value, module.create_placeholder(name, value.type))
    keep_state(f, {"h": "h_out", "window": "window_out"})
    return module


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_replaced_is_read_before(backend: str) -> None:
    network = glowpy.compile(_recurrent(), backend)
    state = network.state()
    h = window = np.zeros((2, 4), np.float32)
    for _ in range(5):
        x = RNG.standard_normal((2, 4)).astype(np.float32)
        y = network({"x": x}, state=state)["y"]
        np.testing.assert_allclose(y, h + window, rtol=1e-5, atol=1e-6)
        h = h * h + x
        window = np.concatenate([window[:, 1:], h[:, :1]], axis=1)
        np.testing.assert_allclose(state["h"], h, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(state["window"], window, rtol=1e-5, atol=1e-6)


_NEXT = ("append", "prepend", "shift", "sum", "two", "same", "part")


def _random_network(rng: random.Random) -> tuple[Module, dict[str, str]]:
    """Caches of all sorts, which are read before and after they are added to."""
    module, pairs = Module(), dict[str, str]()
    x = module.create_placeholder("x", _type("f32[b x 2 x 4]"))
    pasts = [module.create_placeholder(f"past_{i}", _type("f32[b x past x 4]")) for i in range(3)]
    f = module.create_function("main")
    read: list[NodeValue] = []
    for past in pasts:
        following = _following(f, rng.choice(_NEXT), past, x, rng)
        output = module.create_placeholder(f"present_{past.name}", following.type)
        f.create_save("save", following, output)
        pairs[past.original] = output.original
        read += rng.sample([past.value, following, f.create_exp("exp", past).result], 2)
    rng.shuffle(read)
    for number, value in enumerate(read):
        total = f.create_reduce_add("total", value, (1,))
        f.create_save("save", total, module.create_placeholder(f"y{number}", total.type))
    return module, pairs


def _following(
    f: Function, what: str, past: Placeholder, x: Placeholder, rng: random.Random
) -> NodeValue:
    type = _type("f32[b x past+2 x 4]")
    parts = {"append": [past.value, x.value], "prepend": [x.value, past.value]}
    if what in parts:
        return f.create_concat("both", parts[what], 1, result_type=type).result
    grown = f.create_concat("grown", [past, x], 1, result_type=type)
    same = past.type
    match what:
        case "shift":
            return f.create_slice("shift", same, grown, (0, 2, 0), (1, 1, 1)).result
        case "sum":
            return f.create_add("sum", past, f.create_neg("neg", past)).result
        case "two":
            return f.create_concat("two", [grown, x], 1).result
        case "part":
            return f.create_slice("part", same, grown, (0, rng.choice([0, 1]), 0), (1, 1, 1)).result
        case _:
            return past.value


@pytest.mark.parametrize("seed", range(24))
def test_random_caches(seed: int) -> None:
    """What is updated in place is read as it was before, wherever that matters."""
    rng = random.Random(seed)
    plain, pairs = _random_network(rng)
    module = plain.clone()
    keep_state(module.main, pairs)
    network = glowpy.compile(module, "cpu" if seed % 6 == 0 else "interpreter")
    reference = glowpy.compile(plain, "interpreter")
    start = RNG.standard_normal((3, 2, 5, 4)).astype(np.float32)
    for extent in (5, 0):
        past = dict(zip(pairs, start[:, :, :extent], strict=True))
        state = network.state()
        for name, array in past.items():
            state[name] = array
        x = RNG.standard_normal((2, 2, 4)).astype(np.float32)
        outputs, expected = network({"x": x}, state=state), reference({"x": x, **past})
        for name, array in outputs.items():
            np.testing.assert_allclose(array, expected[name], rtol=1e-4, atol=1e-5)
        for name, output in pairs.items():
            np.testing.assert_array_equal(state[name], expected[output])


def test_a_state_knows_arrays_that_lie_in_its_memory() -> None:
    state = stateful("interpreter").state()
    other = np.empty_like(next(iter(state.buffers.values())))
    for memory in state.buffers.values():
        flat = memory.reshape(-1)
        assert all(state.holds(part) for part in (memory, flat, flat[:1], flat[-1:], flat[3:7]))
        assert state.holds(np.frombuffer(flat.data, np.float32))
        assert not state.holds(flat[:0])
    assert not any(state.holds(array) for array in (other, other.reshape(-1), other[:0]))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_a_copied_state_has_memory_of_its_own(
    backend: str, copied: Callable[[State], State]
) -> None:
    network = stateful(backend)
    state, x = network.state(), _x(1, 2)
    network({"x": _x(1, 3)}, state=state)
    other, before = copied(state), state.contents()
    y = network({"x": x}, state=other)["y"]
    assert all(other.holds(memory) for memory in other.buffers.values())
    for name, array in state.contents().items():
        np.testing.assert_array_equal(array, before[name])
    np.testing.assert_array_equal(network({"x": x}, state=state)["y"], y)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_output_may_lie_in_the_memory_of_a_variable(backend: str) -> None:
    network = stateful(backend)
    states = [network.state(), network.state()]
    x = _x(1, 3)
    expected = [network({"x": x}, state=states[0])["y"] for _ in range(2)]
    first = network({"x": x}, state=states[1])["y"]
    np.testing.assert_array_equal(first, expected[0])
    (memory, *_) = states[1].buffers.values()
    out = memory.reshape(-1)[-first.size :].reshape(first.shape)
    y = network({"x": x}, {"y": out}, state=states[1])["y"]
    np.testing.assert_array_equal(y, expected[1])
