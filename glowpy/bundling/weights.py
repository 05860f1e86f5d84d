"""The weights of a bundle as files."""

from __future__ import annotations

from glowpy.bundling.layout import Layout
from glowpy.ir.plan import ALIGNMENT

__all__ = ["weights_header", "weights_listing"]

_PER_LINE = 16


def weights_listing(layout: Layout) -> str:
    """A text for people: where each constant lies in the weights and what its elements begin with."""
    lines = [
        f"# {layout.constants.size} bytes, CRC-32 {layout.crc:08x}",
        "# offset size type name: first elements",
    ]
    seen: set[int] = set()
    for entry in layout.entries:
        for symbol in entry.constants:
            if symbol.offset in seen:
                continue
            seen.add(symbol.offset)
            data = layout.constants[symbol.offset : symbol.offset + symbol.type.size].view(
                symbol.type.kind.dtype
            )
            first = " ".join(str(item) for item in data[:6].tolist())
            lines.append(f"{symbol.offset} {symbol.type.size} {symbol.type} {symbol.name}: {first}")
    return "\n".join(lines) + "\n"


def weights_header(name: str, layout: Layout) -> str:
    """The weights as a C array, aligned; include it in one source file."""
    data = layout.constants.tobytes() or b"\0"
    rows = [data[start : start + _PER_LINE] for start in range(0, len(data), _PER_LINE)]
    body = ",\n".join("  " + ",".join(str(byte) for byte in row) for row in rows)
    return (
        f"/* The weights of {name}. Generated; do not edit. Include this in one source file. */\n"
        "#include <stdint.h>\n\n"
        "#if defined(__GNUC__) || defined(__clang__)\n"
        f"__attribute__((aligned({ALIGNMENT})))\n"
        "#elif defined(_MSC_VER)\n"
        f"__declspec(align({ALIGNMENT}))\n"
        "#endif\n"
        f"static const uint8_t {name}_constants[] = {{\n{body}\n}};\n"
    )
