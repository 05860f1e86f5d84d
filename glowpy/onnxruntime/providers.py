"""Execution providers: glowpy computes on the CPU, and says so to code that asks for another device first."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "CPU",
    "Providers",
    "check_and_normalize_provider_args",
    "check_providers",
    "get_all_providers",
    "get_available_providers",
    "get_device",
]

Providers = Sequence[str | tuple[str, Mapping[Any, Any]]]

CPU = "CPUExecutionProvider"

_OTHERS = (
    "NvTensorRTRTX",
    "Tensorrt",
    "CUDA",
    "MIGraphX",
    "ROCM",
    "OpenVINO",
    "Dnnl",
    "VitisAI",
    "QNN",
    "Nnapi",
    "VSINPU",
    "Js",
    "CoreML",
    "ACL",
    "Dml",
    "Rknpu",
    "WebNN",
    "WebGpu",
    "Xnnpack",
    "CANN",
    "Azure",
)


def get_all_providers() -> list[str]:
    """The names of all providers that onnxruntime has somewhere."""
    return [*(f"{name}ExecutionProvider" for name in _OTHERS), CPU]


def get_available_providers() -> list[str]:
    """The names of the providers there are here: that of the CPU."""
    return [CPU]


def get_device() -> str:
    """`CPU`."""
    return "CPU"


def check_providers(
    providers: Providers | None,
    provider_options: Sequence[Mapping[Any, Any]] | None,
    *,
    fallback: bool,
) -> None:
    """Warns whoever makes a session of the providers that it cannot run on.

    Args:
        providers: Names, or pairs of a name and options; None for whatever there is.
        provider_options: Options for each of the names.
        fallback: Whether what is wrong with the arguments is a warning as well.

    Raises ValueError for arguments of a wrong form, RuntimeError for a name that nobody knows.
    """
    try:
        problems = _problems(_names(providers or (), provider_options))
    except (RuntimeError, ValueError) as error:
        if not fallback:
            raise
        problems = [str(error)]
    for problem in problems:
        warnings.warn(f"{problem}; glowpy runs on {CPU}", UserWarning, stacklevel=3)


def _problems(names: Sequence[str]) -> list[str]:
    problems = []
    for index, name in enumerate(names):
        if name not in get_all_providers():
            raise RuntimeError(f"Unknown Provider Type: {name}; expected one such as {CPU}")
        if name in names[:index]:
            problems.append(f"provider '{name}' is named twice")
        elif name != CPU:
            problems.append(f"provider '{name}' is not available")
    return problems


def _names(providers: Providers, provider_options: Sequence[Mapping[Any, Any]] | None) -> list[str]:
    if isinstance(providers, str) or not isinstance(providers, Sequence):
        raise ValueError(f"expected a sequence of providers, got {providers!r}")
    if provider_options is not None and len(provider_options) != len(providers):
        raise ValueError(
            f"expected options for each of {len(providers)} providers, got {len(provider_options)}"
        )
    names = []
    for provider in providers:
        match provider:
            case str(name):
                names.append(name)
            case (str(name), Mapping()) if provider_options is None:
                names.append(name)
            case _:
                raise ValueError(f"expected the name of a provider, got {provider!r}")
    return names


def check_and_normalize_provider_args(
    providers: Providers | None,
    provider_options: Sequence[Mapping[Any, Any]] | None,
    available_provider_names: Sequence[str],
) -> tuple[list[str], list[dict[str, str]]]:
    """The names of providers and options of each, as texts. Warns of names that are not available, or come again.

    Raises ValueError for arguments of a wrong form.
    """
    options: Any = provider_options
    if options is not None and not (
        isinstance(options, Sequence) and all(isinstance(one, Mapping) for one in options)
    ):
        raise ValueError(f"expected a sequence of mappings as options, got {options!r}")
    names = _names(providers or (), options) if providers is not None else []
    given = options or [one[1] if isinstance(one, tuple) else {} for one in providers or ()]
    normalized: dict[str, dict[str, str]] = {}
    for name, settings in zip(names, given, strict=True):
        if name not in available_provider_names:
            warnings.warn(f"provider '{name}' is not available", UserWarning, stacklevel=2)
        if name in normalized:
            warnings.warn(f"provider '{name}' is named twice", UserWarning, stacklevel=2)
            continue
        normalized[name] = {str(key): str(value) for key, value in settings.items()}
    return list(normalized), list(normalized.values())
