"""The C header of a bundle, for C99 and C++."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np

from glowpy.bundling.c_dims import DIM_FUNCTIONS, c_dim
from glowpy.bundling.layout import Entry, Layout
from glowpy.bundling.network import Symbol
from glowpy.bundling.options import BundleOptions
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Quant
from glowpy.graph.channels_last import LAST_LAYOUTS
from glowpy.ir.plan import ALIGNMENT
from glowpy.llvm.instrument import HEADER_TYPES, KIND_NUMBERS
from glowpy.llvm.status import Status
from glowpy.support.symbolic import highest

__all__ = ["C_TYPES", "ROLE_NUMBERS", "header_text"]

C_TYPES = {
    ElemKind.F16: "uint16_t", ElemKind.BF16: "uint16_t", ElemKind.F32: "float", ElemKind.F64: "double",
    ElemKind.I8: "int8_t", ElemKind.I16: "int16_t", ElemKind.I32: "int32_t", ElemKind.I64: "int64_t",
    ElemKind.U8: "uint8_t", ElemKind.U16: "uint16_t", ElemKind.U32: "uint32_t", ElemKind.U64: "uint64_t",
    ElemKind.BOOL: "uint8_t", **{kind: "uint8_t" for kind in ElemKind if kind.is_code},
}  # fmt: skip
"""How C spells an element in memory."""

ROLE_NUMBERS = {"input": 0, "output": 1, "inout": 2, "constant": 3, "variable": 4}


_PREDEFINED = {
    "x86_64": "defined(__x86_64__) || defined(_M_X64)",
    "aarch64": "defined(__aarch64__) || defined(_M_ARM64)",
    "arm": "defined(__arm__)",
    "thumb": "defined(__thumb__)",
    "thumb_soft": "defined(__thumb__)",
    "riscv64": "defined(__riscv) && __riscv_xlen == 64",
    "riscv32": "defined(__riscv) && __riscv_xlen == 32",
    "wasm32": "defined(__wasm32__)",
    "powerpc64le": "defined(__powerpc64__) && defined(__LITTLE_ENDIAN__)",
}
"""Conditions in terms of macros that C compilers define for each family of targets."""


def header_text(layout: Layout, options: BundleOptions, family: str) -> str:
    """The header: macros for sizes and offsets, prototypes, and for the dynamic API the table's types.

    A compiler for another `family` of targets refuses it: linkers only say that the object's format is wrong.
    """
    name, upper = options.name, options.name.upper()
    lines = [
        f"/* {name}: a neural network compiled by glowpy. Generated; do not edit.",
        "   The caller owns all memory. Areas begin at multiples of the alignment; inputs and outputs lie in the",
        "   mutable area at the offsets below. Functions are safe from several threads on areas of their own. */",
        f"#ifndef GLOWPY_{upper}_H",
        f"#define GLOWPY_{upper}_H",
        "",
        "#include <stddef.h>",
        "#include <stdint.h>",
        "",
        f"#if !({_PREDEFINED[family]})",
        f'#error "{name} was made for {family}: bundle the model again for this target"',
        "#endif",
        "",
        *_types(options, is_open=layout.is_open),
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        f"#define {upper}_ALIGNMENT {ALIGNMENT}u",
        f"#define {upper}_CONSTANTS_SIZE {layout.constants.size}u",
        f"#define {upper}_MUTABLE_SIZE {layout.mutable_size}u",
        f"#define {upper}_ACTIVATIONS_SIZE {layout.activations_size}u",
        f"#define {upper}_CONSTANTS_CRC32 0x{layout.crc:08x}u",
        "",
    ]
    if options.weights == "embedded":
        lines += [
            "/* The weights, to be passed as `constants`. */",
            f"extern const uint8_t {name}_constants[];",
            "",
        ]
    for entry in layout.entries:
        lines += _entry(entry, layout, upper, options.channels_last)
        if options.parallel:
            lines += _parallel(entry)
    lines += _functions(options, is_open=layout.is_open)
    lines += ["", "#ifdef __cplusplus", "}", "#endif", "", "#endif"]
    return "\n".join(lines) + "\n"


def _functions(options: BundleOptions, *, is_open: bool) -> list[str]:
    """Prototypes of what is around the networks."""
    name = options.name
    lines = [
        f"/* Returns 0 if `constants` holds the weights, {Status.CORRUPT_WEIGHTS:d} if others, "
        f"{Status.MISSING_AREA:d} if it is NULL. */",
        f"int {name}_check_weights(const uint8_t *constants);",
    ]
    if options.selftest:
        lines += [
            "",
            "/* Runs every network on golden inputs, in the areas that the networks take. Returns 0, or a status. */",
            f"int {name}_selftest(const uint8_t *constants, uint8_t *mutable_area, uint8_t *activations);",
        ]
    if options.instrument:
        arguments = "(const glowpy_instruction_t *instruction, uint8_t *const *operands)"
        lines += [
            "",
            "/* Called around every instruction, with the address of each operand. You define them. */",
            f"void {name}_before{arguments};",
            f"void {name}_after{arguments};",
        ]
    if options.api == "dynamic":
        lines += [
            "",
            "/* Everything above as data. */",
            f"extern const glowpy_config_t {name}_config;",
        ]
    if options.api == "dynamic" and is_open:
        lines.append(f"extern const glowpy_open_network_t {name}_open_networks[];")
    return lines


_ASSERT = """\
#ifndef GLOWPY_ASSERT
#if defined(__cplusplus) && __cplusplus >= 201103L
#define GLOWPY_ASSERT(condition, words) static_assert(condition, words);
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define GLOWPY_ASSERT(condition, words) _Static_assert(condition, words);
#else
#define GLOWPY_ASSERT(condition, words)
#endif
#endif"""


def _types(options: BundleOptions, *, is_open: bool) -> Iterator[str]:
    """Definitions that several bundles share; every header brings them, the first one defines them."""
    yield from _ASSERT.splitlines()
    yield ""
    statuses = [status for status in Status if status not in _STATUS_OF_OPEN]
    yield from _once(
        "STATUS", ["/* What the functions of a bundle return. */", *_statuses(statuses)]
    )
    if is_open:
        yield from _once("EXTENTS", [*_statuses(_STATUS_OF_OPEN), DIM_FUNCTIONS])
    if options.parallel:
        yield from _once("PARALLEL", [_PARALLEL_TYPES])
    if options.instrument or options.api == "dynamic":
        numbers = {kind.value: number for kind, number in KIND_NUMBERS.items()}
        yield from _once("KINDS", _numbers(numbers))
    if options.instrument:
        yield from _once("INSTRUCTION", [HEADER_TYPES])
    if options.api == "dynamic":
        yield from _once("CONFIG", [*_numbers(ROLE_NUMBERS), _CONFIG_TYPES])
    if options.api == "dynamic" and is_open:
        yield from _once("OPEN_NETWORK", [_OPEN_TYPES])


def _once(guard: str, texts: Iterable[str]) -> list[str]:
    """Definitions that the first header with them makes."""
    name = f"GLOWPY_{guard}"
    return [f"#ifndef {name}", f"#define {name}", *"\n".join(texts).splitlines(), "#endif", ""]


def _statuses(statuses: Iterable[Status]) -> list[str]:
    lines = [f"  GLOWPY_{status.name} = {status:d}, /* {status.meaning} */" for status in statuses]
    return ["enum {", *lines, "};"]


def _numbers(numbers: Mapping[str, int]) -> list[str]:
    lines = [f"  GLOWPY_{name.upper()} = {number}," for name, number in numbers.items()]
    return ["enum {", *lines, "};"]


_STATUS_OF_OPEN = (Status.OUT_OF_BOUNDS,)
"""Statuses that only networks with extents return: headers of others are as they were before there were any."""


_PARALLEL_TYPES = """\
/* Computes the units first <= i < last of a part of a network. */
typedef void (*glowpy_task_t)(void *pointers, size_t first, size_t last);
/* Yours: calls task(pointers, first, last) until each of the units 0 <= i < units was in exactly one call, on any
   threads and in any order, and returns when all calls have returned. `context` is what you passed to the network. The
   results have the same bits however the units are shared. */
typedef void (*glowpy_parallel_for_t)(void *context, glowpy_task_t task, void *pointers, size_t units);"""

_CONFIG_TYPES = """\
/* A tensor: offsets and sizes in bytes, in the constants for GLOWPY_CONSTANT, else in the mutable area.
   Quantized elements stand for scale * (q - zero); scale is 0 where a tensor is not quantized as a whole. */
typedef struct {
  const char *name;
  uint64_t dims[8];
  uint64_t offset;
  uint64_t size;
  float scale;
  int32_t zero;
  uint32_t kind;
  uint32_t role;
  uint32_t rank;
  uint32_t reserved;
} glowpy_symbol_t;
typedef struct {
  const char *name;
  int (*run)(const uint8_t *constants, uint8_t *mutable_area, uint8_t *activations);
  const glowpy_symbol_t *symbols;
  uint64_t num_symbols;
} glowpy_network_t;
typedef struct {
  const char *name;
  const glowpy_network_t *networks;
  uint64_t num_networks;
  uint64_t alignment;
  uint64_t constants_size;
  uint64_t mutable_size;
  uint64_t activations_size;
  uint64_t constants_crc32;
} glowpy_config_t;"""

_OPEN_TYPES = """\
/* The bounds of an extent, both of which it may have; 1 if the network finds and writes it, else 0. */
typedef struct {
  const char *name;
  uint64_t min;
  uint64_t max;
  uint64_t found;
} glowpy_extent_t;
/* What a network with extents has beside its description in the configuration, which has the same index there, no
   `run`, and dimensions and sizes for the highest extents: the extents that `run` takes, in this order, and `dims`,
   which writes the dimensions that the symbol of an index has in a run. All is NULL and 0 for a network without. */
typedef struct {
  int (*run)(const uint8_t *constants, uint8_t *mutable_area, uint8_t *activations, size_t *extents);
  void (*dims)(const size_t *extents, uint64_t symbol, uint64_t *dims);
  const glowpy_extent_t *extents;
  uint64_t num_extents;
} glowpy_open_network_t;"""


def _entry(
    entry: Entry, layout: Layout, upper: str, channels_last: Collection[str]
) -> Iterator[str]:
    """Macros, assertions, accessors and the prototype of one network."""
    prefix = entry.name.upper()
    yield from _extents(entry)
    for port in entry.ports:
        macro = f"{prefix}_{port.name.upper()}"
        most = "" if port.type.is_static else "; size and count are the largest"
        yield f"/* {port.role} '{_comment(port.original)}': {port.type}{most}{_kept(port)} */"
        yield f"#define {macro}_OFFSET {port.offset}u"
        yield f"#define {macro}_SIZE {port.type.room}u"
        yield f"#define {macro}_COUNT {highest(port.type.count)}u"
        if port.type.quant is not None:
            yield from _parameters(macro, port.type.quant)
        if port.original in channels_last:
            yield f'#define {macro}_LAYOUT "{LAST_LAYOUTS[port.type.rank]}"'
    for port in entry.ports:
        macro = f"{prefix}_{port.name.upper()}"
        fits = f"{macro}_OFFSET + {macro}_SIZE <= {upper}_MUTABLE_SIZE"
        yield f'GLOWPY_ASSERT({fits}, "{port.name} lies in the mutable area")'
        yield f'GLOWPY_ASSERT({macro}_OFFSET % {upper}_ALIGNMENT == 0, "{port.name} is aligned")'
    for port in entry.ports:
        yield from _accessor(entry, port)
        if not port.type.is_static:
            yield from _sizes(entry, port)
    if entry.variables:
        yield from _reset(entry)
    yield ""
    yield "/* Runs the network. Returns GLOWPY_OK or another status; outputs are complete only if it is GLOWPY_OK. */"
    yield f"int {entry.name}({_arguments(entry)});"
    yield ""


def _kept(port: Symbol) -> str:
    """Describes the part of a variable's memory that a run reads and leaves."""
    if port.variable is None:
        return ""
    return f"; a run reads {port.variable.type} at the beginning along each axis, and leaves {port.variable.following}"


def _reset(entry: Entry) -> Iterator[str]:
    """A function that a program calls before the first run."""
    has_values = entry.has_initial_values
    what = "what they are" if has_values else "zero, as they are"
    areas = (
        "const uint8_t *constants, uint8_t *mutable_area" if has_values else "uint8_t *mutable_area"
    )
    yield f"/* Makes all variables {what} before the first run. */"
    yield f"static inline void {entry.name}_reset({areas}) {{"
    yield "  size_t i;"
    for port in entry.variables:
        macro = f"{entry.name}_{port.name}".upper()
        first = "0" if port.initial is None else f"constants[{port.initial}u + i]"
        yield f"  for (i = 0; i < {macro}_SIZE; i++) mutable_area[{macro}_OFFSET + i] = {first};"
    yield "}"


def _arguments(entry: Entry) -> str:
    areas = "const uint8_t *constants, uint8_t *mutable_area, uint8_t *activations"
    return f"{areas}, {entry.name}_extents_t *extents" if entry.extents else areas


def _extents(entry: Entry) -> Iterator[str]:
    """The type of what a run says of dimensions, and macros for its bounds."""
    if not entry.extents:
        return
    finds = any(extent.found for extent in entry.extents)
    also = ". What is found, a run writes" if finds else ""
    yield f"/* What the dimensions are that a run may choose, each between its bounds{also}. */"
    yield "typedef struct {"
    for extent in entry.extents:
        bounds = f"{extent.symbol.low}..{extent.symbol.high}"
        yield f"  size_t {extent.name}; /* {bounds}{', found' * extent.found} */"
    yield f"}} {entry.name}_extents_t;"
    for extent in entry.extents:
        macro = f"{entry.name}_{extent.name}".upper()
        yield f"#define {macro}_MIN {extent.symbol.low}u"
        yield f"#define {macro}_MAX {extent.symbol.high}u"


def _parameters(macro: str, quant: Quant) -> Iterator[str]:
    """Defines the parameters of stored integers, which stand for scale * (q - zero); for channels, one of each."""
    scales = [f"{np.float32(scale)!s}f" for scale in quant.scales]
    zeros = [str(offset) for offset in quant.offsets]
    if quant.axis is None:
        yield f"#define {macro}_SCALE {scales[0]}"
        yield f"#define {macro}_ZERO {zeros[0]}"
    else:
        yield f"#define {macro}_AXIS {quant.axis}u"
        yield f"#define {macro}_SCALES {{{', '.join(scales)}}}"
        yield f"#define {macro}_ZEROS {{{', '.join(zeros)}}}"


def _parallel(entry: Entry) -> Iterator[str]:
    """The prototype of the entry point that takes a `parallel_for`."""
    yield f"/* The same with the units of work computed by `parallel_for`; with NULL it is {entry.name}. */"
    yield f"int {entry.name}_parallel({_arguments(entry)},"
    yield "    glowpy_parallel_for_t parallel_for, void *context);"
    yield ""


def _accessor(entry: Entry, port: Symbol) -> Iterator[str]:
    shape = "".join(f"[{dim}]" for dim in port.type.shape) or "a scalar"
    c_type = C_TYPES[port.type.kind]
    yield f"/* {port.type.count} elements: {shape} */"
    yield f"static inline {c_type} *{entry.name}_{port.role}_{port.name}(uint8_t *mutable_area) {{"
    yield f"  return ({c_type} *)(void *)(mutable_area + {entry.name.upper()}_{port.name.upper()}_OFFSET);"
    yield "}"


def _sizes(entry: Entry, port: Symbol) -> Iterator[str]:
    """Functions for the dimensions, the number of elements and the bytes of a tensor in a run."""
    members = {extent.symbol.name: f"extents->{extent.name}" for extent in entry.extents}
    argument, type = f"const {entry.name}_extents_t *extents", port.type
    for what, number in (("count", type.count), ("size", type.size)):
        yield f"static inline size_t {entry.name}_{what}_{port.name}({argument}) {{"
        if isinstance(number, int):  # of nothing, however wide that is
            yield "  (void)extents;"
        yield f"  return {c_dim(number, members)};"
        yield "}"
    yield f"static inline void {entry.name}_dims_{port.name}({argument}, size_t dims[{type.rank}]) {{"
    for axis, dim in enumerate(type.shape):
        yield f"  dims[{axis}] = {c_dim(dim, members)};"
    yield "}"


def _comment(text: str) -> str:
    """`text` as it may stand in a C comment: compilers warn of another in it, and of marks that turn text around."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    return printable.replace("*/", "* /").replace("/*", "/ *")
