"""`torch.compile(model, backend="glowpy")`: results are PyTorch's, and what is not supported is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from glowpy.session.session import InferenceSession
from glowpy.support.errors import UserError
from tests.torch_backend import publish

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("onnxscript", reason="onnxscript is not installed, which torch exports with")

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of torch's exporter
    pytest.mark.timeout(300),
]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    publish()
    torch.compiler.reset()  # PyTorch remembers what varied in any test that it captured a model in
    torch.manual_seed(0)
    yield
    torch.compiler.reset()


@pytest.fixture
def exports(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each export."""
    import glowpy.frontends.torch.compile as module  # noqa: PLC0415 - it needs torch

    counts: list[int] = []
    export = module._export

    def count(*arguments: Any) -> None:
        counts.append(len(counts))
        export(*arguments)

    monkeypatch.setattr(module, "_export", count)
    return counts


def compiled(function: Callable[..., Any], **how: Any) -> Any:
    return torch.compile(function, backend="glowpy", **how)


def check(function: Any, network: Any, *arguments: Any) -> None:
    actual, expected = network(*arguments), function(*arguments)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_a_model_is_exported_once_for_all_extents_and_anew_for_new_weights(
    exports: list[int],
) -> None:
    layers = [torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.GELU()]
    model = torch.nn.Sequential(*layers).eval()
    network = compiled(model)
    with torch.inference_mode():
        for size in (2, 3, 5, 9):  # the second tells PyTorch that extents differ
            check(model, network, torch.randn(size, 4))
        assert len(exports) == 2
    with torch.no_grad():
        layers[0].weight.mul_(2)
        check(model, network, torch.randn(9, 4))
        layers[0].weight.data = torch.randn(3, 4)
        check(model, network, torch.randn(9, 4))
    assert len(exports) == 4


def test_numbers_are_arguments_and_results(exports: list[int]) -> None:
    def function(x: Any, count: int, scale: float) -> Any:
        y = x[:count] * scale
        return y, count + 1, x.shape[0] + count, None, x, [y, {"x": x + 1}]

    network = compiled(function, dynamic=True)
    for size, count, scale in ((5, 2, 1.5), (6, 2, 2.5), (7, 3, 2.5)):
        x = torch.randn(size, 4)
        check(function, network, x, count, scale)
    assert network(x, 3, 2.5)[1:3] == (4, 10)
    assert len(exports) <= 3


@pytest.mark.parametrize("kind", ["float64", "float16", "bfloat16", "int32", "bool"])
def test_kinds_of_elements(kind: str) -> None:
    def function(x: Any, y: Any) -> Any:
        return torch.where(x == y, y, x.flip(0)), x.unsqueeze(0).transpose(0, 1)

    dtype = getattr(torch, kind)
    x, y = (torch.randn(6).mul(2).to(dtype) for _ in range(2))
    check(function, compiled(function), x.reshape(3, 2).t(), y.reshape(2, 3))


def test_outputs_are_the_callers() -> None:
    network = compiled(lambda x: (x + 1, x.sum()))
    first, total = network(torch.zeros(3))
    second, _ = network(torch.ones(3))
    assert first.tolist() == [1, 1, 1]
    assert second.add_(5).tolist() == [7, 7, 7]
    assert total.shape == ()


def test_a_graph_that_breaks() -> None:
    def function(x: Any) -> Any:
        y = x.cos()
        return y * 2 if y.sum().item() > 0 else y - 1

    network = compiled(function)
    for x in (torch.zeros(3), torch.full((3,), 3.0)):
        check(function, network, x)


@pytest.mark.parametrize(
    "options",
    [{"threads": 2}, {"backend": "interpreter"}, {"precision": "f32", "low_memory": True}],
)
def test_options(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    import glowpy.frontends.torch.compile as module  # noqa: PLC0415 - it needs torch

    passed: list[dict[str, Any]] = []

    def session(path: Any, **how: Any) -> InferenceSession:
        passed.append(how)
        return InferenceSession(path, **how)

    monkeypatch.setattr(module, "InferenceSession", session)
    assert compiled(lambda x: x * 2, options=options)(torch.ones(2)).tolist() == [2, 2]
    assert options.items() <= passed[0].items()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"options": {"thread": 2}}, "unknown option 'thread', expected one of backend"),
        ({"options": {"precision": "f16"}}, "precision: expected one of f32, bf16"),
        ({"mode": "max-autotune"}, "glowpy has no mode 'max-autotune'"),
    ],
)
def test_options_that_there_are_not(how: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        compiled(lambda x: x * 2, **how)(torch.ones(2))


def test_there_are_no_gradients() -> None:
    model = torch.nn.Linear(4, 3)
    y = compiled(model)(torch.randn(2, 4))
    assert y.requires_grad
    with pytest.raises(UserError, match="glowpy has no gradients for PyTorch"):
        y.sum().backward()


def test_writing_into_an_argument_is_refused() -> None:
    def function(x: Any, y: Any) -> Any:
        x.add_(y)
        return x * 2

    with pytest.raises(UserError, match="the model writes into 'l_x_'"):
        compiled(function)(torch.ones(2), torch.ones(2))


def test_normalization_in_training_is_refused() -> None:
    model = torch.nn.BatchNorm1d(3)
    with torch.no_grad(), pytest.raises(UserError, match=r"writes into .*running_mean"):
        compiled(model)(torch.randn(4, 3))


def test_what_pytorch_does_not_export_is_named() -> None:
    with pytest.raises(UserError, match=r"PyTorch does not export the graph: .*linalg_qr"):
        compiled(lambda x: torch.linalg.qr(x)[0])(torch.randn(3, 3))


def test_complex_results_are_refused() -> None:
    with pytest.raises(UserError, match="expected results of real numbers, got complex"):
        compiled(torch.fft.fft)(torch.ones(4))
    x = torch.randn(4)
    real = compiled(lambda x: torch.view_as_real(torch.fft.fft(x)))(x)
    torch.testing.assert_close(real, torch.view_as_real(torch.fft.fft(x)))


def attention(parameters: Any, x: Any, mask: Any, mask_type: int | None, **how: Any) -> Any:
    from glowpy.frontends.torch.layers import LAYERS  # noqa: PLC0415 - it needs torch

    fast = torch._native_multi_head_attention
    arguments = (x, x.flip(0), x.flip(1), 8, 2, *parameters[:4], mask)
    actual, expected = (f(*arguments, **how, mask_type=mask_type) for f in (LAYERS[fast], fast))
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mask_type", [None, 0, 1, 2])
def test_layers_are_what_pytorch_computes_at_once(mask_type: int | None) -> None:
    from glowpy.frontends.torch.layers import LAYERS  # noqa: PLC0415 - it needs torch

    x, shapes = torch.randn(2, 3, 8), {0: (3, 3), 1: (2, 3), 2: (2, 2, 3, 3)}
    mask = None if mask_type is None else torch.ones(shapes[mask_type]).triu(1)
    sizes = [(24, 8), (24,), (8, 8), (8,), (8,), (8,), (8,), (8,), (4, 8), (4,), (8, 4), (8,)]
    parameters = [torch.randn(size) for size in sizes]
    if mask_type != 0:
        for how in ({"need_weights": False}, {}, {"average_attn_weights": False}):
            attention(parameters, x, mask, mask_type, **how)
    fast = torch._transformer_encoder_layer_fwd
    for use_gelu, norm_first in ((True, False), (False, True)):
        arguments = (x, 8, 2, *parameters[:4], use_gelu, norm_first, 1e-5, *parameters[4:])
        actual, expected = (f(*arguments, mask, mask_type) for f in (LAYERS[fast], fast))
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_a_layer_with_a_fast_path() -> None:
    """PyTorch computes it by one operator, which it does not export, where no gradients are asked for."""
    layer = torch.nn.TransformerEncoderLayer(8, 2, 4, batch_first=True).eval()
    with torch.no_grad():
        check(layer, compiled(layer, options={"backend": "interpreter"}), torch.randn(2, 3, 8))


def test_what_is_not_dense_is_refused() -> None:
    from glowpy.frontends.torch.compile import _check  # noqa: PLC0415 - it needs torch

    with pytest.raises(UserError, match=r"expected dense tensors of the CPU, got one of meta"):
        _check(torch.empty(2, device="meta"))
    with pytest.raises(UserError, match=r"got one of cpu, torch.sparse_coo"):
        _check(torch.eye(2).to_sparse())
