"""The C header of a bundle, for C99 and C++."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

import numpy as np

from glowpy.backends.cpu.abi import Status
from glowpy.backends.cpu.bundle.layout import Entry, Layout, Symbol
from glowpy.backends.cpu.bundle.options import BundleOptions
from glowpy.backends.cpu.instrument import HEADER_TYPES, KIND_NUMBERS
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Quant
from glowpy.graph.channels_last import LAST_LAYOUTS
from glowpy.ir.plan import ALIGNMENT

__all__ = ["C_TYPES", "ROLE_NUMBERS", "header_text"]

C_TYPES = {
    ElemKind.F16: "uint16_t", ElemKind.BF16: "uint16_t", ElemKind.F32: "float", ElemKind.F64: "double",
    ElemKind.I8: "int8_t", ElemKind.I16: "int16_t", ElemKind.I32: "int32_t", ElemKind.I64: "int64_t",
    ElemKind.U8: "uint8_t", ElemKind.U16: "uint16_t", ElemKind.U32: "uint32_t", ElemKind.U64: "uint64_t",
    ElemKind.BOOL: "uint8_t", **{kind: "uint8_t" for kind in ElemKind if kind.is_code},
}  # fmt: skip
"""How C spells an element in memory."""

ROLE_NUMBERS = {"input": 0, "output": 1, "inout": 2, "constant": 3}


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
"""What C compilers define for each family of targets."""


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
        *_types(options),
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
    lines += _functions(options)
    lines += ["", "#ifdef __cplusplus", "}", "#endif", "", "#endif"]
    return "\n".join(lines) + "\n"


def _functions(options: BundleOptions) -> list[str]:
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


def _types(options: BundleOptions) -> Iterator[str]:
    """Definitions that several bundles share; every header brings them, the first one defines them."""
    yield from _ASSERT.splitlines()
    yield ""
    yield "#ifndef GLOWPY_STATUS"
    yield "#define GLOWPY_STATUS"
    yield "/* What the functions of a bundle return. */"
    yield "enum {"
    for status in Status:
        yield f"  GLOWPY_{status.name} = {status:d}, /* {status.meaning} */"
    yield "};"
    yield "#endif"
    yield ""
    if options.parallel:
        yield "#ifndef GLOWPY_PARALLEL"
        yield "#define GLOWPY_PARALLEL"
        yield from _PARALLEL_TYPES.splitlines()
        yield "#endif"
        yield ""
    if options.instrument or options.api == "dynamic":
        yield "#ifndef GLOWPY_KINDS"
        yield "#define GLOWPY_KINDS"
        yield "enum {"
        for kind, number in KIND_NUMBERS.items():
            yield f"  GLOWPY_{kind.value.upper()} = {number},"
        yield "};"
        yield "#endif"
        yield ""
    if options.instrument:
        yield "#ifndef GLOWPY_INSTRUCTION"
        yield "#define GLOWPY_INSTRUCTION"
        yield from HEADER_TYPES.splitlines()
        yield "#endif"
        yield ""
    if options.api != "dynamic":
        return
    yield "#ifndef GLOWPY_CONFIG"
    yield "#define GLOWPY_CONFIG"
    yield "enum {"
    for role, number in ROLE_NUMBERS.items():
        yield f"  GLOWPY_{role.upper()} = {number},"
    yield "};"
    yield from _CONFIG_TYPES.splitlines()
    yield "#endif"
    yield ""


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


def _entry(
    entry: Entry, layout: Layout, upper: str, channels_last: Collection[str]
) -> Iterator[str]:
    """Macros, assertions, accessors and the prototype of one network."""
    prefix = entry.name.upper()
    for port in entry.ports:
        macro = f"{prefix}_{port.name.upper()}"
        yield f"/* {port.role} '{_comment(port.original)}': {port.type} */"
        yield f"#define {macro}_OFFSET {port.offset}u"
        yield f"#define {macro}_SIZE {port.type.size}u"
        yield f"#define {macro}_COUNT {port.type.count}u"
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
    yield ""
    yield "/* Runs the network. Returns GLOWPY_OK or another status; outputs are complete only if it is GLOWPY_OK. */"
    yield f"int {entry.name}(const uint8_t *constants, uint8_t *mutable_area, uint8_t *activations);"
    yield ""


def _parameters(macro: str, quant: Quant) -> Iterator[str]:
    """What stored integers stand for: scale * (q - zero); of channels, one of each."""
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
    yield f"int {entry.name}_parallel(const uint8_t *constants, uint8_t *mutable_area, uint8_t *activations,"
    yield "    glowpy_parallel_for_t parallel_for, void *context);"
    yield ""


def _accessor(entry: Entry, port: Symbol) -> Iterator[str]:
    shape = "".join(f"[{dim}]" for dim in port.type.shape) or "a scalar"
    c_type = C_TYPES[port.type.kind]
    yield f"/* {math.prod(port.type.shape)} elements: {shape} */"
    yield f"static inline {c_type} *{entry.name}_{port.role}_{port.name}(uint8_t *mutable_area) {{"
    yield f"  return ({c_type} *)(void *)(mutable_area + {entry.name.upper()}_{port.name.upper()}_OFFSET);"
    yield "}"


def _comment(text: str) -> str:
    """`text` as it may stand in a C comment: compilers warn of another in it, and of marks that turn text around."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    return printable.replace("*/", "* /").replace("/*", "/ *")
