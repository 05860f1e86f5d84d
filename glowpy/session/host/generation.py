"""Operators that generate text, of onnxruntime's: BeamSearch, WhisperBeamSearch, GreedySearch and Sampling.

The session asks a decoder for logits, step by step, and chooses tokens. The decoder and its encoder are compiled, for
ranges of lengths as all that a session compiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from glowpy.core.tensor import Array
from glowpy.importer.generation import GPT, T5, WHISPER, DecoderForm, decoder_form
from glowpy.importer.value_types import HostValue, TensorType
from glowpy.session.host.beams import Beams, best
from glowpy.session.host.decoders import Decoder, EncodedDecoder, PromptedDecoder
from glowpy.session.host.node import HostNode, number, on_host
from glowpy.session.host.sampling import Choice, Generator, drawn
from glowpy.session.host.token_scores import Timestamps, TokenScores, log_softmax
from glowpy.support.errors import UnsupportedError, UserError

__all__ = ["BEAM_OPERANDS", "SAMPLE_OPERANDS"]

BEAM_OPERANDS = (
    *("input_ids", "max_length", "min_length", "num_beams", "num_return_sequences"),
    *("length_penalty", "repetition_penalty", "vocab_mask", "prefix_vocab_mask", "attention_mask"),
    *("decoder_input_ids", "logits_processor", "cross_qk_layer_head", "extra_decoding_ids"),
    "temperature",
)
"""Operands of searches with beams, of which those with sound have the last ones."""
SAMPLE_OPERANDS = (
    *("input_ids", "max_length", "min_length", "repetition_penalty", "vocab_mask"),
    *("prefix_vocab_mask", "attention_mask", "presence_mask", "seed"),
)
"""Operands of Sampling, of which GreedySearch has the first ones."""

_LONGEST_OF_BEAMS, _LONGEST = 4096, 16384
"""The length of a text at most, with beams and without: more is no text but an attack on memory."""
_MOST_BEAMS = 128

_Outer = dict[str, HostValue]
_Outputs = tuple[HostValue, ...]


class _Given:
    """The operands of a call by their names, beside what graphs read of the graph around them."""

    def __init__(
        self, names: Sequence[str], outer: _Outer, operands: Sequence[Array | None]
    ) -> None:
        self.outer = outer
        self._operands = dict(zip(names, operands, strict=False))

    def array(self, name: str) -> Array | None:
        """An operand; None if it is not given."""
        return self._operands.get(name)

    def number(self, name: str, default: int) -> int:
        """One integer."""
        array = self.array(name)
        return default if array is None else number(name, array)

    def real(self, name: str) -> float:
        """One number, which is 1 if it is not given."""
        array = self.array(name)
        if array is not None and array.size != 1:
            raise UserError(f"expected one number as {name}, got {list(array.shape)}")
        return 1.0 if array is None else float(array.reshape(-1)[0])

    def prompts(self, rank: int) -> Array:
        """Returns what texts begin with, or what an encoder reads."""
        array = self.array("input_ids")
        if array is None or array.ndim != rank or not array.size:
            shape = None if array is None else list(array.shape)
            raise UserError(f"expected input_ids of rank {rank} with elements, got {shape}")
        return array

    def mask(self, name: str, shape: tuple[int, ...]) -> Array | None:
        """A mask; None if it is not given. Raises UserError for one of another shape."""
        array = self.array(name)
        if array is not None and array.shape != shape:
            raise UserError(f"{name}: expected the shape {list(shape)}, got {list(array.shape)}")
        return array


@dataclass(frozen=True)
class _Tokens:
    """Tokens that a node names, and limits of its texts.

    Attributes:
        end: The token that ends a text.
        pad: The token after its end.
        start: The token that a text of an encoded input begins with.
        ngram: The length of what no text has twice; 0 for any.
        vocabulary: How many tokens there are; 0 for as many as logits.
        longest: The length of a text at most.
    """

    end: int
    pad: int
    start: int
    ngram: int
    vocabulary: int
    longest: int

    @classmethod
    def of(cls, n: HostNode, longest: int) -> _Tokens:
        """Reads the attributes of a node."""
        return cls(
            n.integer("eos_token_id", -1),
            n.integer("pad_token_id", -1),
            n.integer("decoder_start_token_id", -1),
            n.integer("no_repeat_ngram_size", 0),
            max(n.integer("vocab_size", -1), 0),
            longest,
        )

    def logits(self, logits: Array) -> Array:
        """The logits of the vocabulary in f32: there may be more of them, so that their number is a round one."""
        if self.vocabulary > logits.shape[1]:
            raise UserError(
                f"attribute 'vocab_size': expected at most {logits.shape[1]}, as many as the decoder "
                f"gives logits, got {self.vocabulary}"
            )
        return logits[:, : self.vocabulary or logits.shape[1]].astype(np.float32, copy=False)

    def length(self, given: _Given, begun: int) -> int:
        """The length that texts may have. Raises UserError if they are as long already."""
        length = given.number("max_length", self.longest)
        if not begun < length <= self.longest:
            raise UserError(
                f"expected a max_length from {begun + 1} to {self.longest}, got {length}"
            )
        return length

    def scores(self, given: _Given, texts: int, vocabulary: int) -> TokenScores:
        """The rules that operands give. Raises UserError for masks of another shape, and for a penalty that is none."""
        penalty = given.real("repetition_penalty")
        if not penalty > 0:
            raise UserError(f"expected a repetition_penalty above 0, got {penalty:g}")
        return TokenScores(
            self.end,
            penalty,
            self.ngram,
            given.mask("vocab_mask", (vocabulary,)),
            given.mask("prefix_vocab_mask", (texts, vocabulary)),
            given.number("min_length", 0),
            given.real("temperature"),
        )


# Decoders.

_Begin = Callable[[_Given], Decoder]
"""Returns a decoder in which the texts of a call begin."""


def _form(n: HostNode, name: str, model_type: int) -> DecoderForm:
    body = n.bodies[name]
    return decoder_form(body.input_names, body.input_types, len(body.output_types), model_type)


def _prompted(n: HostNode, tokens: _Tokens) -> _Begin:
    """Reads a decoder alone, perhaps with a graph of its own for the first step."""
    form = _form(n, "decoder", GPT)
    first = "decoder"
    if "init_decoder" in n.bodies:
        _form(n, "init_decoder", GPT)
        first = "init_decoder"
    cache = form.cache
    dtype = cache.dtype if isinstance(cache, TensorType) else np.dtype(np.float32)

    def begin(given: _Given) -> Decoder:
        prompts = given.prompts(2)
        mask = given.mask("attention_mask", prompts.shape)
        graphs = [partial(n.bodies[name], outer=given.outer) for name in (first, "decoder")]
        return PromptedDecoder(graphs[0], graphs[1], form, prompts, mask, tokens.pad, dtype)

    return begin


def _encoded(n: HostNode, model_type: int, tokens: _Tokens) -> _Begin:
    """Reads a decoder with an encoder before it."""
    if "encoder" not in n.bodies:
        raise UserError(f"attribute 'encoder' is required where model_type is {model_type}")
    names = [*n.bodies["encoder"].input_names]
    takes_begun = names[-1:] == ["decoder_input_ids"]
    expected = ["encoder_input_ids", *["encoder_attention_mask"] * (model_type == T5)]
    expected += ["decoder_input_ids"] * (takes_begun or model_type == WHISPER)
    if names != expected:
        raise UserError(
            f"encoder: expected the inputs {', '.join(expected)}, got {', '.join(names)}"
        )
    form = _form(n, "decoder", model_type)

    def begin(given: _Given) -> Decoder:
        prompts = given.prompts(2 if model_type == T5 else 3)
        begun = given.array("decoder_input_ids") if model_type == WHISPER else None
        begun = _begun(begun, len(prompts), tokens.start)
        inputs, fixed = [prompts], {"encoder_input_ids": prompts}
        if model_type == T5:
            mask = given.mask("attention_mask", prompts.shape)
            if mask is None:  # padding is on the left: the token that ends a text may be the same
                is_text = np.logical_or.accumulate(prompts != tokens.pad, axis=1)
                mask = is_text.astype(np.int32)
            inputs.append(mask)
            fixed["encoder_attention_mask"] = mask
        encoded = n.bodies["encoder"]([*inputs, *[begun] * takes_begun], given.outer)
        step = partial(n.bodies["decoder"], outer=given.outer)
        return EncodedDecoder(step, form, begun, fixed, encoded)

    return begin


def _begun(given: Array | None, texts: int, start: int) -> Array:
    """The tokens that texts begin with: those that are given, or one."""
    if given is None:
        if start < 0:
            raise UserError("attribute 'decoder_start_token_id': expected a token, got none")
        return np.full((texts, 1), start, np.int32)
    if given.ndim != 2 or len(given) != texts or not given.size:
        raise UserError(f"expected decoder_input_ids of {texts} texts, got {list(given.shape)}")
    return given


# Beams.


@dataclass(frozen=True)
class _Search:
    """A search for the best texts.

    Attributes:
        tokens: Those that the node names.
        begin: Begins the texts of a call.
        stops_early: As `Beams` has it.
        timestamps: The rules for timestamps, which a call asks for; None without any.
        no_speech: The token that says there is no speech; -1 for none.
        has_scores: Whether the scores of each step are asked for.
    """

    tokens: _Tokens
    begin: _Begin
    stops_early: bool
    timestamps: Timestamps | None
    no_speech: int
    has_scores: bool

    def run(self, given: _Given) -> _Outputs:
        """Computes all outputs of the operators, with None for one that is not supported."""
        decoder = self.begin(given)
        begun = decoder.begun
        length = self.tokens.length(given, begun.shape[1])
        count, results = _counts(given)
        logits = self.tokens.logits(decoder.first())
        scores = self.tokens.scores(given, len(begun), logits.shape[1])
        if given.number("logits_processor", 0) == 1 and self.timestamps is not None:
            self.timestamps.check(logits.shape[1])
            scores = scores.with_timestamps(self.timestamps)
        beams = Beams(
            begun,
            count,
            length_penalty=given.real("length_penalty"),
            end=self.tokens.end,
            pad=self.tokens.pad,
            stops_early=self.stops_early,
        )
        chances = self._no_speech(logits)
        steps = self._steps(decoder, beams, scores, length, logits)
        texts, best_scores = beams.results(results, length)
        penalty = given.array("length_penalty")
        dtype = np.dtype(np.float32) if penalty is None else penalty.dtype
        floats = [None if item is None else item.astype(dtype) for item in (steps, chances)]
        return texts, best_scores.astype(dtype), floats[0], None, floats[1]

    def _steps(
        self, decoder: Decoder, beams: Beams, rules: TokenScores, length: int, logits: Array
    ) -> Array | None:
        """Goes to the end of the search, and returns the scores at each step if they are asked for; 0 after the end."""
        rows, begun = beams.tokens.shape
        texts, vocabulary = logits.shape
        shape = length - begun, texts, rows // texts, vocabulary
        steps = np.zeros(shape, np.float32) if self.has_scores else None
        logits = np.repeat(logits, rows // texts, axis=0)
        for step in range(length - begun):
            if step:
                logits = self.tokens.logits(decoder.next(beams.tokens, beams.origins))
            with np.errstate(over="ignore"):  # of what is forbidden already
                scores = log_softmax(logits)
                rules.apply(scores, beams.tokens, is_first=not step)
                scores += beams.scores[:, np.newaxis]
            if steps is not None:
                steps[step] = scores.reshape(shape[1:])
            beams.advance(scores)
            if beams.is_done:
                break
        return steps

    def _no_speech(self, logits: Array) -> Array | None:
        """The chances, of each text, that its first token says that there is no speech."""
        if self.no_speech < 0:
            return None
        if self.no_speech >= logits.shape[1]:
            raise UserError(
                f"attribute 'no_speech_token_id': expected one of {logits.shape[1]} tokens, got {self.no_speech}"
            )
        chances: Array = np.exp(log_softmax(logits)[:, self.no_speech])
        return chances


def _counts(given: _Given) -> tuple[int, int]:
    """The number of beams, and of texts that are asked for."""
    beams, results = given.number("num_beams", 1), given.number("num_return_sequences", 1)
    if not 1 <= beams <= _MOST_BEAMS:
        raise UserError(f"expected num_beams from 1 to {_MOST_BEAMS}, got {beams}")
    if not 1 <= results <= beams:
        raise UserError(f"expected num_return_sequences from 1 to {beams}, got {results}")
    return beams, results


def _timestamps(n: HostNode, tokens: _Tokens) -> Timestamps:
    """The rules for timestamps, of the tokens that the node names."""

    def named(*names: str) -> tuple[int, ...]:
        numbers = [n.integer(f"{name}_token_id", -1) for name in names]
        return tuple(number for number in numbers if number >= 0)

    begin = n.integer("beginning_timestamp_token_id", -1)
    never = named("no_timestamps", "start_of_lm")
    return Timestamps(begin, tokens.end, never, named("decoder_start", "translate", "transcribe"))


@on_host("BeamSearch")
def _beam_search(n: HostNode) -> Callable[..., _Outputs]:
    model_type = n.integer("model_type", GPT)
    if model_type not in (GPT, T5, WHISPER):
        raise UserError(f"attribute 'model_type': expected 0, 1 or 2, got {model_type}")
    return _search(n, model_type)


@on_host("WhisperBeamSearch")
def _whisper_beam_search(n: HostNode) -> Callable[..., _Outputs]:
    model_type = n.integer("model_type", WHISPER)
    if model_type != WHISPER:
        raise UserError(f"attribute 'model_type': expected 2, got {model_type}")
    return _search(n, model_type)


def _search(n: HostNode, model_type: int) -> Callable[..., _Outputs]:
    """Reads a node, and returns what computes it."""
    if n.gives(3) or n.flag("decoder_output_cross_qk"):
        raise UnsupportedError(
            "the output cross_qk is not supported, nor is it by onnxruntime on CPUs"
        )
    no_speech = n.integer("no_speech_token_id", -1) if n.gives(4) else -1
    if n.gives(4) and no_speech < 0:
        raise UserError(
            "attribute 'no_speech_token_id' is required for the output non_speech_probs"
        )
    tokens = _Tokens.of(n, _LONGEST_OF_BEAMS)
    search = _Search(
        tokens,
        _prompted(n, tokens) if model_type == GPT else _encoded(n, model_type, tokens),
        n.integer("early_stopping", 0) == 1,
        _timestamps(n, tokens) if model_type == WHISPER else None,
        no_speech,
        n.gives(2),
    )
    return lambda outer, *operands: search.run(_Given(BEAM_OPERANDS, outer, operands))


# One text alone.


@dataclass(frozen=True)
class _Writing:
    """A text that goes on with one token at each step.

    Attributes:
        tokens: Those that the node names.
        begin: Begins the texts of a call.
        temperature: What scores are divided by.
        presence_penalty: What is taken from the scores of tokens that are present.
        choice: How a token is drawn; None for the most likely one.
    """

    tokens: _Tokens
    begin: _Begin
    temperature: float = 1.0
    presence_penalty: float = 0.0
    choice: Choice | None = None

    def run(self, given: _Given) -> _Outputs:
        """Computes the texts, filled up to their greatest length."""
        decoder = self.begin(given)
        texts, begun = decoder.begun.shape
        length = self.tokens.length(given, begun)
        generator = Generator(given.number("seed", 0))
        logits = self.tokens.logits(decoder.first())
        rules = self.tokens.scores(given, texts, logits.shape[1]).tempered(self.temperature)
        presence = given.mask("presence_mask", logits.shape)
        if presence is not None and self.presence_penalty:
            rules = rules.reduced(presence * np.float32(self.presence_penalty))
        tokens, ended = decoder.begun, np.zeros(texts, bool)
        for step in range(length - begun):
            if step:
                logits = self.tokens.logits(decoder.next(tokens, np.arange(texts)))
            with np.errstate(over="ignore"):
                rules.apply(logits, tokens, is_first=not step)
            token = self._chosen(logits, generator)
            ended |= token == self.tokens.end
            token = np.where(ended, self.tokens.pad, token).astype(np.int32)
            tokens = np.concatenate([tokens, token[:, np.newaxis]], axis=1)
            if ended.all():
                break
        rest = np.full((texts, length - tokens.shape[1]), self.tokens.pad, np.int32)
        return (np.concatenate([tokens, rest], axis=1),)

    def _chosen(self, scores: Array, generator: Generator) -> Array:
        if self.choice is None:
            _, places = best(scores, 1)
            return places[:, 0]
        self.choice.filter(scores)
        return drawn(scores, generator)


def _writing(
    n: HostNode, temperature: float = 1.0, penalty: float = 0.0, choice: Choice | None = None
) -> Callable[..., _Outputs]:
    """Reads a node whose decoder has no encoder, and returns what computes it."""
    model_type = n.integer("model_type", GPT)
    if model_type != GPT:
        raise UnsupportedError(f"attribute 'model_type': only 0 is supported, got {model_type}")
    tokens = _Tokens.of(n, _LONGEST)
    writing = _Writing(tokens, _prompted(n, tokens), temperature, penalty, choice)
    return lambda outer, *operands: writing.run(_Given(SAMPLE_OPERANDS, outer, operands))


@on_host("GreedySearch")
def _greedy_search(n: HostNode) -> Callable[..., _Outputs]:
    return _writing(n)


@on_host("Sampling")
def _sampling(n: HostNode) -> Callable[..., _Outputs]:
    if n.gives(1):
        raise UnsupportedError(
            "the output filtered_logits is not supported: onnxruntime has it in builds for debugging only"
        )
    choice = Choice(
        n.real("top_p", 0.0),
        n.real("filter_value", -1e20),
        n.integer("min_tokens_to_keep", 0),
        n.flag("custom"),
    )
    if choice.least < 0:
        raise UserError(
            f"attribute 'min_tokens_to_keep': expected no negative number, got {choice.least}"
        )
    return _writing(n, n.real("temperature", 1.0), n.real("presence_penalty", 0.0), choice)
