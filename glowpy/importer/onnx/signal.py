"""Import of signal processing: DFT, STFT and MelWeightMatrix."""

from __future__ import annotations

import math

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import is_same_shape, normalize_axis
from glowpy.core.tensor import Array, Tensor
from glowpy.graph.node import NodeValue
from glowpy.importer.elements import kind_of
from glowpy.importer.kit.moves import convert, reshape, slice_axis, transpose
from glowpy.importer.kit.numbers import Numbers, counted
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim, least, static

__all__: list[str] = []

_MOST_WEIGHTS = 1 << 28
_LONGEST = 1 << 24
_LARGEST_FACTOR = 50


@from_onnx("MelWeightMatrix", since=17)
def _mel_weight_matrix(n: OnnxNode) -> Value:
    """Triangles over the bins of a spectrum, at equal distances on the mel scale."""
    bands, length, rate = (int(n.known_scalar(index)) for index in range(3))
    low, high = (float(n.known_scalar(index)) for index in (3, 4))
    if bands < 0 or length < 1 or rate < 1 or not 0 <= low <= high:
        raise UserError(
            "expected bands, a length, a rate and edges that ascend, "
            f"got {bands}, {length}, {rate}, {low:g} and {high:g}"
        )
    bins = length // 2 + 1
    if bands * bins > _MOST_WEIGHTS:
        raise UserError(f"expected at most {_MOST_WEIGHTS} weights, got {bands} times {bins}")
    edges = _band_edges(bands, length, rate, low, high)
    if edges[-1] > bins:
        raise UserError(f"expected edges below half of the rate {rate}, got {high:g}")
    weights = np.zeros((bins, bands), np.float32)
    for band, (first, middle, last) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        rising = np.arange(first, middle + 1)
        falling = np.arange(middle, last)
        if first == middle:
            weights[middle : middle + 1, band] = 1
        else:
            weights[rising[rising < bins], band] = ((rising - first) / (middle - first))[
                rising < bins
            ]
        weights[falling, band] = (last - falling) / max(last - middle, 1)
    kind = kind_of(n.integer("output_datatype", 1))
    return convert(n, Tensor.of(weights), kind)


def _band_edges(bands: int, length: int, rate: int, low: float, high: float) -> Array:
    """The bins of the spectrum at which triangles begin, peak and end."""
    ends = 2595 * np.log10(1 + np.array([low, high]) / 700)
    mels = ends[0] + np.arange(bands + 2) * ((ends[1] - ends[0]) / (bands + 2))
    hertz = 700 * (10 ** (mels / 2595) - 1)
    return np.asarray(((length + 1) * hertz // rate).astype(np.int64))


@from_onnx("DFT", since=17)
def _dft_17(n: OnnxNode) -> Value:
    return _dft(n, n.axis(n.type(0).rank, 1))


@from_onnx("DFT", since=20)
def _dft_20(n: OnnxNode) -> Value:
    axis = int(n.known_scalar(2)) if n.has(2) else -2
    return _dft(n, normalize_axis(axis, n.type(0).rank))


def _dft(n: OnnxNode, axis: int) -> Value:
    """Along the dimension before the last, which holds both parts of a number."""
    x, rank = n.type(0), n.type(0).rank
    if axis == rank - 1 or x.shape[-1] not in (1, 2):
        raise UserError(
            f"expected one or two parts of each number along another axis than {axis}, got {x}"
        )
    inverse, half = n.flag("inverse"), n.flag("onesided")
    if n.has(1):
        length = int(n.known_scalar(1))
    else:
        (size,) = static([x.shape[axis]])
        length = 2 * (size - 1) if inverse and half else size
    order = (*(other for other in range(rank - 1) if other != axis), axis, rank - 1)
    moved = transpose(n, n.value(0), order)
    result = _transformed(n, moved, length, inverse=inverse, half=half)
    return transpose(n, result, [order.index(other) for other in range(rank)])


@from_onnx("STFT", since=17)
def _stft(n: OnnxNode) -> Value:
    """Frames of the signal, each times the window, are transformed."""
    signal = n.value(0)
    if signal.type.rank == 2:  # as PyTorch writes it, and onnxruntime takes it
        signal = reshape(n, signal, (*signal.type.shape, 1))
    x = signal.type
    if x.rank != 3 or x.shape[-1] not in (1, 2):
        raise UserError(f"expected a signal [batch, length, 1 or 2], got {x}")
    step, window = int(n.known_scalar(1)), n.value(2) if n.has(2) else None
    if window is not None and window.type.rank != 1:
        raise UserError(f"expected a vector as the window, got {window.type}")
    length = (
        int(n.known_scalar(3))
        if n.has(3)
        else static([x.shape[1] if window is None else window.type.shape[0]])[0]
    )
    if step < 1 or length < 1:
        raise UserError(f"expected a step and a length of at least 1, got {step} and {length}")
    if window is not None and not is_same_shape(window.type.shape, (length,)):
        raise UserError(f"expected a window of {length} elements, got {window.type}")
    if x.shape[1] < length:
        raise UserError(f"expected a signal of at least {length} elements, got {x}")
    count = (x.shape[1] - length) // step + 1
    frames = _frames(n, signal, step, length, count)
    if window is not None:
        factors = convert(n, reshape(n, window, (length, 1)), x.kind)
        frames = n.f.create_mul(n.name, n.operand(frames), n.operand(factors)).result
    return _transformed(n, frames, length, inverse=False, half=n.flag("onesided", True))


def _frames(n: OnnxNode, signal: Value, step: int, length: int, count: Dim) -> Value:
    """Overlapping parts of a signal, [batch, frames, length, parts].

    They are gathered in pieces that are as long as steps and frames are multiples of.
    """
    batch, _, parts = signal.type.shape
    piece = math.gcd(step, length)
    pieces = (count - 1) * (step // piece) + length // piece
    used = slice_axis(n, signal, 1, 0, pieces * piece, 1)
    cut = reshape(n, used, (batch, pieces, piece * parts))
    first = counted(n, count).reshaped(count, 1) * (step // piece)
    places = first + Numbers(n, Tensor.of(np.arange(length // piece)))
    gathered = n.f.create_gather(n.name, n.operand(cut), places.operand, 1)
    return reshape(n, gathered.result, (batch, count, length, parts))


def _transformed(n: OnnxNode, value: Value, length: int, *, inverse: bool, half: bool) -> Value:
    """The transform along the dimension before the last; halves are widened."""
    if not 1 <= length <= _LONGEST:
        raise UserError(f"expected a length from 1 to {_LONGEST}, got {length}")
    source_kind = value.type.kind
    kind = ElemKind.F64 if source_kind is ElemKind.F64 else ElemKind.F32
    signal = n.operand(convert(n, value, kind), n.proto.input[0])
    if _largest_factor(length) > _LARGEST_FACTOR:
        return convert(n, _convolved(n, signal, length, inverse=inverse, half=half), source_kind)
    return convert(n, _fast(n, signal, length, inverse=inverse, half=half), source_kind)


def _fast(
    n: OnnxNode, signal: NodeValue, length: int, *, inverse: bool, half: bool = False
) -> NodeValue:
    """A transform of which every factor of the length takes a pass."""
    roots = _turns(length)
    pairs = np.stack([roots.real, roots.imag], -1).astype(signal.type.kind.dtype)
    table = n.operand(Tensor.of(pairs), f"{n.name}_roots")
    return n.f.create_fourier_transform(n.name, signal, table, inverse, half).result


def _convolved(n: OnnxNode, signal: NodeValue, length: int, *, inverse: bool, half: bool) -> Value:
    """A transform of a length with a large factor as a convolution, by transforms of a power of two (Bluestein 1970).

    What a spectrum lacks are the conjugates of what it has: twice these have the same real parts.
    """
    chirp = _turns(2 * length)[np.arange(length, dtype=np.int64) ** 2 % (2 * length)]
    chirp = chirp.conj() if inverse else chirp
    size = 1 << (2 * length - 2).bit_length()
    wave = np.zeros(size, np.complex128)
    wave[:length] = chirp.conj()
    wave[size - length + 1 :] = chirp.conj()[:0:-1]
    bins, axis = length // 2 + 1, signal.type.rank - 2
    rows = least(signal.type.shape[axis], bins if inverse and half else length)
    weights = np.full(length, 2 if inverse and half else 1)
    weights[[0, length // 2] if length % 2 == 0 else [0]] = 1
    taken = slice_axis(n, signal, axis, 0, rows, 1)
    factors = slice_axis(n, _pairs(n, chirp * weights, signal.type.kind), 0, 0, rows, 1)
    spectrum = _fast(n, _product(n, taken, factors), size, inverse=False)
    mixed = _product(n, spectrum, _pairs(n, np.fft.fft(wave), signal.type.kind))
    count = bins if half and not inverse else length
    result = slice_axis(n, _fast(n, mixed, size, inverse=True), axis, 0, count, 1)
    chirp = chirp[:count] / (length if inverse else 1)
    turned = _product(n, result, _pairs(n, chirp, signal.type.kind))
    return slice_axis(n, turned, axis + 1, 0, 1 if inverse and half else 2, 1)


def _pairs(n: OnnxNode, numbers: Array, kind: ElemKind) -> Value:
    """Rows of what `_product` multiplies both parts with, and what the other part of each."""
    parts = [numbers.real, numbers.real, -numbers.imag, numbers.imag]
    return Tensor.of(np.stack(parts, -1).astype(kind.dtype))


def _product(n: OnnxNode, value: Value, factors: Value) -> NodeValue:
    """Numbers with one or two parts, times complex ones."""
    last, f = value.type.rank - 1, n.f
    own, other = (n.operand(slice_axis(n, factors, 1, start, 2, 1)) for start in (0, 2))
    numbers = n.operand(value)
    if value.type.shape[last] == 1:
        own = n.operand(slice_axis(n, factors, 1, 0, 2, 3))
        return f.create_mul(n.name, numbers, own).result
    turned = f.create_mul(n.name, n.operand(slice_axis(n, value, last, 1, 2, -1)), other)
    return f.create_add(n.name, f.create_mul(n.name, numbers, own), turned).result


def _largest_factor(number: int) -> int:
    factor = 2
    while factor * factor <= number:
        if number % factor:
            factor += 1
        else:
            number //= factor
    return number


def _turns(length: int) -> Array:
    """exp(-2 pi i k / length) for each k: quarters of a turn are exact, and the angles between them small."""
    quarters = np.arange(length, dtype=np.int64) * 4
    turns = (2 * quarters + length) // (2 * length)
    angles = (quarters - turns * length) / length * (np.pi / 2)
    return np.asarray(
        np.array([1, -1j, -1, 1j])[turns % 4] * (np.cos(angles) - 1j * np.sin(angles))
    )
