"""LLVM IR of what a bundle has around its networks: the weights, their check, the self-test, the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from glowpy.bundling.header import ROLE_NUMBERS
from glowpy.bundling.layout import Entry, Layout
from glowpy.bundling.network import Symbol
from glowpy.bundling.options import BundleOptions
from glowpy.core.elemkind import ElemKind
from glowpy.core.extents import Extents, type_at
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.ir.plan import ALIGNMENT
from glowpy.llvm.element_types import literal
from glowpy.llvm.entry import check_areas
from glowpy.llvm.extents import emit_dim
from glowpy.llvm.head import Head
from glowpy.llvm.instrument import KIND_NUMBERS, string_constant
from glowpy.llvm.object_file import MARKER
from glowpy.llvm.status import Status
from glowpy.llvm.writer import ModuleWriter
from glowpy.support import symbolic

__all__ = ["Golden", "support_texts"]

_SYMBOL_TYPE = (
    "%glowpy_symbol_t = type { ptr, [8 x i64], i64, i64, float, i32, i32, i32, i32, i32 }"
)
_NETWORK_TYPE = "%glowpy_network_t = type { ptr, ptr, ptr, i64 }"
_EXTENT_TYPE = "%glowpy_extent_t = type { ptr, i64, i64, i64 }"
_OPEN_TYPE = "%glowpy_open_network_t = type { ptr, ptr, ptr, i64 }"
_CONFIG_TYPE = "%glowpy_config_t = type { ptr, ptr, i64, i64, i64, i64, i64, i64 }"


@dataclass(frozen=True)
class Golden:
    """One run of a network as it should be: arrays by placeholder, and what its symbols are."""

    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    extents: Extents = field(default_factory=dict)

    def type(self, port: Symbol) -> Type:
        """Returns the type of an input or output in this run."""
        array = self.outputs.get(port.weight, self.inputs.get(port.weight))
        if array is None:
            return type_at(port.type, self.extents)
        return Type(port.type.kind, array.shape, port.type.quant)


def support_texts(
    layout: Layout,
    options: BundleOptions,
    module: ModuleWriter,
    golden: Mapping[str, Sequence[Golden]],
    tolerance: float,
) -> list[str]:
    """The texts of everything visible in a bundle but the networks; the self-test allows outputs the tolerance."""
    texts = list(_check_weights(layout, options, module))
    if options.weights == "embedded":
        texts += _weights(layout, options)
    if options.sanitize:
        texts += _hooks(options, module)
    if options.selftest:
        texts += _selftest(layout, options, module, golden, tolerance)
    if options.api == "dynamic":
        texts += _config(layout, options)
        if layout.is_open:
            texts += _open_networks(layout, options, module)
    return texts


def _check_weights(layout: Layout, options: BundleOptions, module: ModuleWriter) -> Iterator[str]:
    dim = module.dim
    module.declare("libjit_crc32", "i32", ["ptr", dim])
    missing = ""
    if layout.constants.size:
        missing = (
            "  %missing = icmp eq ptr %constants, null\n"
            "  br i1 %missing, label %none, label %some\n"
            f"none:\n  ret i32 {Status.MISSING_AREA:d}\nsome:\n"
        )
    head = Head("i32", f"{options.name}_check_weights", "ptr %constants")
    yield (
        f"{module.begin(head)}\n{missing}"
        f"  %crc = call i32 @libjit_crc32(ptr %constants, {dim} {layout.constants.size})\n"
        f"  %same = icmp eq i32 %crc, {layout.crc}\n"
        f"  %status = select i1 %same, i32 0, i32 {Status.CORRUPT_WEIGHTS:d}\n"
        "  ret i32 %status\n}"
    )


def _hooks(options: BundleOptions, module: ModuleWriter) -> Iterator[str]:
    """Defines the hooks called before and after each run of instructions, which do nothing until they are replaced."""
    unwatched = f"{options.name}_unwatched"
    head = Head("void", unwatched, "i32 %index, ptr %operands", "internal")
    yield f"{module.begin(head)}\n  ret void\n}}"
    yield f"@{options.name}_hooks = global [2 x ptr] [ptr @{unwatched}, ptr @{unwatched}]"


def _weights(layout: Layout, options: BundleOptions) -> Iterator[str]:
    """A marker and zeros: the elements never travel through LLVM (see `object_file.embed`).

    Externally initialized, as LLVM calls it: else the optimizer computes with the marker and the zeros.
    """
    rest = max(layout.constants.size, len(MARKER)) - len(MARKER)
    yield (
        f"@{options.name}_constants = externally_initialized constant <{{ [{len(MARKER)} x i8], [{rest} x i8] }}> "
        f"<{{ [{len(MARKER)} x i8] {_bytes(MARKER)}, [{rest} x i8] zeroinitializer }}>, align {ALIGNMENT}"
    )


def _selftest(
    layout: Layout,
    options: BundleOptions,
    module: ModuleWriter,
    golden: Mapping[str, Sequence[Golden]],
    tolerance: float,
) -> Iterator[str]:
    """`NAME_selftest`: every golden run in the caller's memory; the first status that is not 0 is returned."""
    name, dim = options.name, module.dim
    copy = f"llvm.memcpy.p0.p0.{dim}"
    module.declare(copy, "void", ["ptr", "ptr", dim, "i1"])
    areas = ("ptr %constants", "ptr %mutable", "ptr %activations")
    lines = [module.begin(Head("i32", f"{name}_selftest", ", ".join(areas)))]
    most = max(len(entry.extents) for entry in layout.entries)
    if most:
        lines.append(f"  %extents = alloca [{most} x {dim}]")
    lines += check_areas({"mutable": layout.mutable_size}, dim)  # golden inputs are copied there
    step = 0
    for entry in layout.entries:
        for run in golden[entry.name]:
            ports = [replace(port, type=run.type(port)) for port in entry.ports]
            ports = [port for port in ports if port.type.size]
            lines += [
                f"  {_place(step, port)} = getelementptr i8, ptr %mutable, {dim} {port.offset}"
                for port in ports
            ]
            for port in ports:
                if port.weight in run.inputs:
                    data = f"@{name}.golden.{step}.{port.name}"
                    yield f"{data} = private constant {_array(run.inputs[port.weight])}"
                    lines.append(
                        f"  call void @{copy}(ptr align {ALIGNMENT} {_place(step, port)}, "
                        f"ptr align {ALIGNMENT} {data}, {dim} {port.type.size}, i1 false)"
                    )
            lines += _tell(entry, run, dim, step)
            arguments = (*areas, "ptr %extents") if entry.extents else areas
            call = f"call i32 @{entry.name}({', '.join(arguments)})"
            lines += [f"  %code{step} = {call}", *_unless(f"%code{step}", step, f"%code{step}")]
            lines += _compare_found(entry, run, dim, step)
            for port in ports:
                if port.weight in run.outputs:
                    data = f"@{name}.expected.{step}.{port.name}"
                    yield f"{data} = private constant {_array(run.outputs[port.weight])}"
                    places = _place(step, port), data
                    lines += _compare(module, port, *places, f"{step}.{port.name}", tolerance)
            step += 1
    yield "\n".join([*lines, "  ret i32 0", "}"])


def _tell(entry: Entry, run: Golden, dim: str, step: int) -> list[str]:
    """Stores the extents of a run; those that the network finds are others before."""
    lines = []
    for index, extent in enumerate(entry.extents):
        place = f"%extent.{step}.{index}"
        number = -1 if extent.found else run.extents[extent.symbol.name]
        lines += [
            f"  {place} = getelementptr {dim}, ptr %extents, {dim} {index}",
            f"  store {dim} {number}, ptr {place}",
        ]
    return lines


def _compare_found(entry: Entry, run: Golden, dim: str, step: int) -> list[str]:
    """Returns early where outputs have other dimensions: elements are compared as far as golden ones go."""
    lines: list[str] = []
    places = {extent.symbol.name: index for index, extent in enumerate(entry.extents)}
    found = {extent.symbol.name for extent in entry.extents if extent.found}

    def let(text: str) -> str:
        register = f"%found.{step}.{len(lines)}"
        lines.append(f"  {register} = {text}")
        return register

    def load(symbol: symbolic.Symbol) -> str:
        return let(f"load {dim}, ptr %extent.{step}.{places[symbol.name]}")

    for port in entry.ports:
        for axis, extent in enumerate(port.type.shape):
            if symbolic.symbols_of([extent]).keys() & found:
                golden = run.type(port).shape[axis]
                same = let(f"icmp eq {dim} {emit_dim(extent, load, let, dim)}, {golden}")
                differs = let(f"select i1 {same}, i32 0, i32 1")
                status = f"{Status.SELFTEST_FAILED:d}"
                lines += _unless(differs, differs.removeprefix("%"), status)
    return lines


def _place(step: int, port: Symbol) -> str:
    """Returns LLVM's name of the pointer to an input or output."""
    return f"%place.{step}.{port.name}"


def _unless(code: str, step: int | str, status: str) -> list[str]:
    """Returns `status` unless `code` is 0."""
    return [
        f"  %ok.{step} = icmp eq i32 {code}, 0",
        f"  br i1 %ok.{step}, label %good.{step}, label %bad.{step}",
        f"bad.{step}:",
        f"  ret i32 {status}",
        f"good.{step}:",
    ]


def _compare(
    module: ModuleWriter, port: Symbol, result: str, golden: str, step: str, tolerance: float
) -> list[str]:
    dim, kind = module.dim, port.type.kind
    if kind in (ElemKind.F32, ElemKind.F64):
        symbol = f"libjit_matches_{kind.suffix}"
        module.declare(symbol, "i1", ["ptr", "ptr", dim, "double"])
        call = f"call i1 @{symbol}(ptr {result}, ptr {golden}, {dim} {port.type.count}, double {tolerance!r})"
    else:
        module.declare("libjit_matches_x8", "i1", ["ptr", "ptr", dim])
        call = f"call i1 @libjit_matches_x8(ptr {result}, ptr {golden}, {dim} {port.type.size})"
    return [
        f"  %same.{step} = {call}",
        f"  %differs.{step} = select i1 %same.{step}, i32 0, i32 1",
        *_unless(f"%differs.{step}", step, f"{Status.SELFTEST_FAILED:d}"),
    ]


def _config(layout: Layout, options: BundleOptions) -> Iterator[str]:
    name = options.name
    yield f"{_SYMBOL_TYPE}\n{_NETWORK_TYPE}\n{_CONFIG_TYPE}"
    networks = []
    for entry in layout.entries:
        yield from _symbols(entry)
        count = len(entry.symbols)
        run = "null" if entry.extents else f"@{entry.name}"
        networks.append(
            f"%glowpy_network_t {{ ptr @{entry.name}.name, ptr {run}, ptr @{entry.name}.symbols, i64 {count} }}"
        )
    yield f"@{name}.networks = private constant [{len(networks)} x %glowpy_network_t] [{', '.join(networks)}]"
    yield f"@{name}.config.name = private constant {string_constant(name)}"
    numbers = (
        len(networks), ALIGNMENT, layout.constants.size, layout.mutable_size, layout.activations_size, layout.crc,
    )  # fmt: skip
    fields = ", ".join(f"i64 {number}" for number in numbers)
    yield f"@{name}_config = constant %glowpy_config_t {{ ptr @{name}.config.name, ptr @{name}.networks, {fields} }}"


def _symbols(entry: Entry) -> Iterator[str]:
    yield f"@{entry.name}.name = private constant {string_constant(entry.name)}"
    items = []
    for index, symbol in enumerate(entry.symbols):
        yield f"@{entry.name}.symbol{index} = private constant {string_constant(symbol.original)}"
        dims = ", ".join(
            f"i64 {symbolic.highest(dim)}"
            for dim in (*symbol.type.shape, *[0] * (8 - symbol.type.rank))
        )
        quant = symbol.type.quant
        scale, zero = (
            (quant.scales[0], quant.offsets[0])
            if quant is not None and quant.axis is None
            else (0.0, 0)
        )
        number = literal(ElemKind.F32, scale)
        items.append(
            f"%glowpy_symbol_t {{ ptr @{entry.name}.symbol{index}, [8 x i64] [{dims}], i64 {symbol.offset}, "
            f"i64 {symbol.type.room}, float {number}, i32 {zero}, i32 {KIND_NUMBERS[symbol.type.kind]}, "
            f"i32 {ROLE_NUMBERS[symbol.role]}, i32 {symbol.type.rank}, i32 0 }}"
        )
    yield f"@{entry.name}.symbols = private constant [{len(items)} x %glowpy_symbol_t] [{', '.join(items)}]"


def _open_networks(layout: Layout, options: BundleOptions, module: ModuleWriter) -> Iterator[str]:
    """The table of what networks with extents have beside the others."""
    yield f"{_EXTENT_TYPE}\n{_OPEN_TYPE}"
    rows = []
    for entry in layout.entries:
        extents, count = f"@{entry.name}.extents", len(entry.extents)
        if not entry.extents:
            rows.append("%glowpy_open_network_t zeroinitializer")
            continue
        items = []
        for index, extent in enumerate(entry.extents):
            name, bounds = f"@{entry.name}.extent{index}", extent.symbol
            yield f"{name} = private constant {string_constant(bounds.name)}"
            numbers = f"i64 {bounds.low}, i64 {bounds.high}, i64 {extent.found:d}"
            items.append(f"%glowpy_extent_t {{ ptr {name}, {numbers} }}")
        yield f"{extents} = private constant [{count} x %glowpy_extent_t] [{', '.join(items)}]"
        yield _dims(entry, module)
        rows.append(
            f"%glowpy_open_network_t {{ ptr @{entry.name}, ptr @{entry.name}.dims, ptr {extents}, i64 {count} }}"
        )
    yield f"@{options.name}_open_networks = constant [{len(rows)} x %glowpy_open_network_t] [{', '.join(rows)}]"


def _dims(entry: Entry, module: ModuleWriter) -> str:
    """The function that writes the dimensions of a symbol of a network."""
    dim, places = module.dim, [extent.symbol.name for extent in entry.extents]
    cases = [f"i64 {index}, label %symbol{index}" for index in range(len(entry.symbols))]
    parameters = "ptr %extents, i64 %symbol, ptr %dims"
    lines = [
        module.begin(Head("void", f"{entry.name}.dims", parameters, "internal")),
        f"  switch i64 %symbol, label %none [{' '.join(cases)}]",
        "none:",
        "  ret void",
    ]

    def let(text: str) -> str:
        register = f"%n{len(lines)}"
        lines.append(f"  {register} = {text}")
        return register

    def load(symbol: symbolic.Symbol) -> str:
        index = places.index(symbol.name)
        return let(f"load {dim}, ptr {let(f'getelementptr {dim}, ptr %extents, {dim} {index}')}")

    for index, symbol in enumerate(entry.symbols):
        lines.append(f"symbol{index}:")
        for axis, extent in enumerate(symbol.type.shape):
            number = emit_dim(extent, load, let, dim)
            if dim != "i64" and not isinstance(extent, int):
                number = let(f"zext {dim} {number} to i64")
            place = let(f"getelementptr i64, ptr %dims, {dim} {axis}")
            lines.append(f"  store i64 {number}, ptr {place}")
        lines.append("  ret void")
    return "\n".join([*lines, "}"])


def _bytes(data: bytes) -> str:
    return 'c"' + "".join(f"\\{byte:02X}" for byte in data) + '"'


def _array(array: Array) -> str:
    data = np.ascontiguousarray(array).tobytes()
    return f"[{len(data)} x i8] {_bytes(data)}, align {ALIGNMENT}"
