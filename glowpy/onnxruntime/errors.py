"""onnxruntime's exceptions, with glowpy's messages; what glowpy raised is the cause of each."""

from __future__ import annotations

from glowpy.support.errors import GlowError, LoadError, ResourceError, UnsupportedError, UserError

__all__ = [
    "EPFail",
    "EngineError",
    "Fail",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "ModelLoadCanceled",
    "ModelLoaded",
    "ModelRequiresCompilation",
    "NoModel",
    "NoSuchFile",
    "NotFound",
    "NotImplemented",
    "RuntimeException",
    "translated",
]

# ruff: noqa: N818 - the names are onnxruntime's


class Fail(Exception):
    """A failure without a name of its own, such as a run that `RunOptions.terminate` forbids."""


class InvalidArgument(Exception):
    """An input or output that the model does not have, or an array that does not fit."""


class NoSuchFile(Exception):
    """There is no file at the model's path."""


class NoModel(Exception):
    """For `except` clauses: never raised here."""


class EngineError(Exception):
    """For `except` clauses: never raised here."""


class RuntimeException(Exception):
    """No memory, or another limit of the machine; or a bug in glowpy."""


class InvalidProtobuf(Exception):
    """The file is no ONNX model, or is damaged."""


class ModelLoaded(Exception):
    """For `except` clauses: never raised here."""


class NotImplemented(Exception):
    """An operator, type or option that glowpy does not have."""


class InvalidGraph(Exception):
    """The model contradicts itself."""


class EPFail(Exception):
    """For `except` clauses: never raised here."""


class ModelRequiresCompilation(Exception):
    """For `except` clauses: never raised here."""


class NotFound(Exception):
    """For `except` clauses: never raised here."""


class ModelLoadCanceled(Exception):
    """For `except` clauses: never raised here."""


_STATUSES = {
    "FAIL": (1, Fail),
    "NOT_IMPLEMENTED": (9, NotImplemented),
    "INVALID_GRAPH": (10, InvalidGraph),
}
"""The numbers of onnxruntime's statuses, and what it raises for them."""


def translated(error: GlowError, otherwise: type[Exception]) -> Exception:
    """The exception that says what `error` says; `otherwise` for what is wrong with a model or an array.

    Where onnxruntime refuses the same with words of its own, these stand below the message, and the class is theirs.
    """
    message = str(error)
    if "expected external data in a plain file" in message:  # what programs look for
        message = f"External data path validation failed: {message}"
    match error:
        case ResourceError():
            return RuntimeException(message)
        case LoadError():
            return InvalidProtobuf(message)
        case UserError():
            verdict = next((d.verdict for d in error.diagnostics if d.verdict), "")
            if verdict:
                code, kind = _STATUSES[verdict.partition(" ")[0]]
                return kind(f"{message}\n[ONNXRuntimeError] : {code} : {verdict}")
            return (NotImplemented if isinstance(error, UnsupportedError) else otherwise)(message)
        case _:
            return RuntimeException(message)
