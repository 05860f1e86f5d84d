"""Names of onnxruntime's for what glowpy does not have: they can be imported, and say so when they are used."""

from __future__ import annotations

from typing import Any, NoReturn, final

from glowpy.onnxruntime import errors

__all__ = [
    "ModelPackage",
    "ModelPackageComponentContext",
    "ModelPackageContext",
    "ModelPackageOptions",
    "ModelPackageWriteMode",
    "OrtEpContextData",
    "OrtEpContextDataBuffer",
]


class _Absent:
    """Raises NotImplemented when one is made."""

    _what = ""

    def __init__(self, *args: Any, **options: Any) -> None:
        del args, options
        self._refuse()

    @classmethod
    def open(cls, *args: Any, **options: Any) -> NoReturn:
        """Raises NotImplemented."""
        del args, options
        cls._refuse()

    @classmethod
    def _refuse(cls) -> NoReturn:
        raise errors.NotImplemented(f"{cls.__name__}: {cls._what}")


class _Package(_Absent):
    _what = "model packages are not supported; open the ONNX file of one of its variants"


@final
class ModelPackage(_Package):
    """A package of models, for annotations."""


@final
class ModelPackageContext(_Package):
    """A package that was opened, for annotations."""


@final
class ModelPackageComponentContext(_Package):
    """A part of a package, for annotations."""


@final
class ModelPackageOptions(_Package):
    """How a package is opened, for annotations."""


@final
class ModelPackageWriteMode(_Package):
    """How a package is written, for annotations."""


class _EpContext(_Absent):
    _what = "providers are machine code for onnxruntime, and none of it runs here"


@final
class OrtEpContextData(_EpContext):
    """A provider's compiled data, for annotations."""


@final
class OrtEpContextDataBuffer(_EpContext):
    """Where a provider reads what it has compiled, for annotations."""
