"""Graphs of operators that generate text: what their encoders and decoders take and give, for readers and sessions.

A decoder takes the tokens, then what does not change from step to step, then the caches of its layers; it gives the
logits and the caches with the step added. Which input is which follows from its place, so all dimensions that grow, or
that count texts, have one name wherever they are, and the graph is compiled for ranges of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from glowpy.importer.declared import DeclaredDim
from glowpy.importer.value_types import TensorType, ValueType
from glowpy.support.errors import UnsupportedError, UserError

__all__ = ["GPT", "T5", "WHISPER", "DecoderForm", "decoder_form", "named_dims"]

GPT, T5, WHISPER = 0, 1, 2
"""Values of `model_type`: a decoder alone, or one after an encoder of tokens or of sound."""

_FIRST = {
    GPT: ["input_ids", "position_ids", "attention_mask"],
    T5: ["input_ids", "encoder_attention_mask"],
    WHISPER: ["input_ids"],
}
"""Inputs of decoders before the caches, by the model's type; in the order in which they are."""

_OPTIONAL = {
    GPT: [],
    T5: ["encoder_input_ids", "encoder_hidden_states"],
    WHISPER: ["encoder_hidden_states"],
}
"""Inputs that may be among these."""

_SHARED = {"past_sequence_length", "beam_width", "cache_indirection"}
"""Inputs of decoders whose caches stay in one memory."""


@dataclass(frozen=True)
class DecoderForm:
    """The form of a decoder.

    Attributes:
        fixed: Inputs between the tokens and the caches, by name.
        num_caches: How many caches change from step to step.
        num_cross: How many more there are, of what the encoder has read, which do not change.
        takes_texts: Whether it takes all tokens of a text at every step, rather than the last one.
        cache: The type of a cache, as far as it is known.
    """

    fixed: tuple[str, ...]
    num_caches: int
    num_cross: int
    takes_texts: bool
    cache: ValueType | None

    def empty_cache(self, texts: int) -> tuple[int, ...]:
        """The shape of a cache without an entry. Raises UserError if the graph does not say it."""
        dims = self.cache.dims if isinstance(self.cache, TensorType) else None
        heads, size = (dims[-3], dims[-1]) if dims is not None and len(dims) in (4, 5) else (0, 0)
        if not (isinstance(heads, int) and heads and isinstance(size, int)):
            raise UserError(
                "decoder: expected caches with a declared number of heads, and their size"
            )
        shape = texts, heads, 0, size
        return shape if self.num_cross else (2, *shape)


def decoder_form(
    names: Sequence[str], types: Sequence[ValueType | None], num_outputs: int, model_type: int
) -> DecoderForm:
    """Reads the form of a decoder, of the names and types of its inputs. Raises UserError for a graph that is none."""
    if shared := [name for name in names if name in _SHARED]:
        raise UnsupportedError(
            f"decoder: the input '{shared[0]}' is not supported: caches are values of their own",
            note="export the model without past_present_share_buffer",
        )
    num_caches = num_outputs - 1
    num_cross = 0 if model_type == GPT else num_caches
    count = len(names) - num_caches - num_cross
    first = names[: max(count, 0)]
    required = [name for name in first if name not in _OPTIONAL[model_type]]
    if num_caches < 1 or count < 1 or required != _FIRST[model_type]:
        expected = ", ".join(_FIRST[model_type])
        raise UserError(
            f"decoder: expected the inputs {expected} and the caches of its layers, got {', '.join(names)}"
        )
    ids = types[0].dims if isinstance(types[0], TensorType) else None
    takes_texts = model_type != GPT and not (ids is not None and len(ids) == 2 and ids[1] == 1)
    return DecoderForm(tuple(first[1:]), num_caches, num_cross, takes_texts, types[count])


# Dimensions.

_OWN = None
"""A dimension of its own: as the graph says it."""

_Roles = Sequence[str | None]

_OF_ENCODERS: dict[str, _Roles] = {
    "encoder_input_ids": ("texts", "words"),
    "encoder_attention_mask": ("texts", "words"),
    "decoder_input_ids": ("texts", "begun"),
}

_OF_DECODERS: dict[str, _Roles] = {
    "input_ids": ("rows", "length"),
    "position_ids": ("rows", "length"),
    "attention_mask": ("rows", "total"),
    "encoder_input_ids": ("rows", "words"),
    "encoder_attention_mask": ("rows", "words"),
    "encoder_hidden_states": ("rows", "frames", _OWN),
}


def named_dims(
    names: Sequence[str],
    dims: Sequence[Sequence[DeclaredDim] | None],
    num_outputs: int,
    model_type: int,
    *,
    is_encoder: bool,
) -> list[Sequence[DeclaredDim] | None]:
    """The dimensions of the inputs of a graph: its numbers, and one name for what is one extent.

    Those of an input that the graph declares in another rank are as it declares them.
    """
    if is_encoder:
        roles = [_OF_ENCODERS.get(name) for name in names]
    else:
        roles = _roles_of_decoder(names, num_outputs - 1, model_type)
    return [
        declared if declared is None or role is None else _named(declared, role)
        for declared, role in zip(dims, roles, strict=True)
    ]


def _roles_of_decoder(
    names: Sequence[str], num_caches: int, model_type: int
) -> list[_Roles | None]:
    growing: _Roles = ("rows", _OWN, "seen", _OWN)
    caches: list[_Roles] = [growing] * num_caches + [("rows", _OWN, "frames", _OWN)] * num_caches
    if model_type == GPT:
        caches = [(_OWN, *growing)] * num_caches
    first = len(names) - len(caches)
    return [
        _OF_DECODERS.get(name) if place < first else caches[place - first]
        for place, name in enumerate(names)
    ]


def _named(declared: Sequence[DeclaredDim], roles: _Roles) -> Sequence[DeclaredDim]:
    if len(declared) == 3 and len(roles) == 2:  # sound
        roles = (roles[0], _OWN, _OWN)
    if len(declared) != len(roles):
        return declared
    return [_dim(dim, role) for dim, role in zip(declared, roles, strict=True)]


def _dim(declared: DeclaredDim, role: str | None) -> DeclaredDim:
    if role is _OWN:
        return declared if isinstance(declared, int) else None
    return 1 if role == "length" and declared == 1 else role
