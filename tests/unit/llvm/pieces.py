"""Libraries of kernels as libjit/compile.py writes them."""

import json


def piece(module: bytes, defines: list[str], uses: list[str]) -> bytes:
    """A library of one module, or a part of a larger one."""
    contents = {"defines": defines, "uses": uses, "size": len(module)}
    return json.dumps(contents).encode() + b"\n" + module
