"""`Kept`: what models have in common of which the cache says what a session asks."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from glowpy.support.cache import Key, read, write

if TYPE_CHECKING:
    from glowpy.importer.model import HostedModel, Model

__all__ = ["Kept", "opened", "told"]


class Kept(ABC):
    """A model of which the cache says what a session asks: it is read when something of it has to be built."""

    @property
    @abstractmethod
    def is_read(self) -> bool:
        """Whether the model itself was read."""

    @property
    @abstractmethod
    def identity(self) -> tuple[str, ...]:
        """Names that no other model has."""

    @abstractmethod
    def opened(self) -> Model | HostedModel:
        """The model itself. Raises LoadError if its file was changed since."""

    def told(self, what: str, tell: Callable[[Any], Any]) -> Any:
        """Returns what `tell` says of the model, which has a form in JSON, or what it said before of `what`."""
        key = Key.of("model", *self.identity, what)
        payload = read(key)
        if payload is None:
            payload = json.dumps(tell(self.opened())).encode()
            write(key, payload)
        return json.loads(payload)


def opened(model: Model | HostedModel) -> Model | HostedModel:
    """The model itself of what is perhaps kept. Raises LoadError if its file was changed since."""
    return model.opened() if isinstance(model, Kept) else model


def told(model: Model | HostedModel, what: str, tell: Callable[[Any], Any]) -> Any:
    """Returns what `tell` says of a model that was read, which has a form in JSON: see `Kept.told`."""
    return model.told(what, tell) if isinstance(model, Kept) else tell(model)
