"""`ProcessBound`: objects that cannot be copied, because they hold machine code, threads or files of a process."""

from __future__ import annotations

from typing import Never, SupportsIndex

from glowpy.support.errors import UserError

__all__ = ["ProcessBound"]


class ProcessBound:
    """Base of objects that neither `copy` nor `pickle` takes."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> Never:
        """Raises UserError."""
        del protocol
        raise UserError(
            f"cannot copy or pickle {type(self).__name__}: its code, threads and memory belong to this process",
            note="open or compile the model again, from its path or bytes; a fork has all of it",
        )
