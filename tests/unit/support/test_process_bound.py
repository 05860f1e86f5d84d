"""Sessions and compiled functions are not copied, and say so without noise."""

import copy
import pickle
from collections.abc import Callable

import onnx.parser
import pytest

import glowpy
import glowpy.onnxruntime as ort

MODEL = '<ir_version: 8, opset_import: ["": 17]> g (float[2] x) => (float[2] y) { y = Add(x, x) }'


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.filterwarnings("error")
def test_what_belongs_to_a_process_is_not_copied(
    copied: Callable[[object], object], capsys: pytest.CaptureFixture[str]
) -> None:
    model = onnx.parser.parse_model(MODEL)
    compiled = glowpy.compile(glowpy.load(model))
    for bound in (
        glowpy.InferenceSession(model),
        glowpy.InferenceSession(model, backend="interpreter"),
        ort.InferenceSession(model.SerializeToString()),
        compiled,
        compiled.instance(),
        glowpy.function(lambda x: x + x),
        [{"session": compiled}] if copied is not copy.copy else compiled,
    ):
        with pytest.raises(glowpy.UserError, match="cannot copy or pickle"):
            copied(bound)
    assert capsys.readouterr().err == ""


def test_the_version_is_that_of_the_package() -> None:
    from importlib.metadata import version  # noqa: PLC0415 - to compare

    assert glowpy.__version__ == version("glowpy")
