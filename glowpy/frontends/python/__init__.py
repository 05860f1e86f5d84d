"""Python functions with branches, loops and recursion: straight-line segments of machine code, and what links them.

A function is read from its source (`read`) into blocks (`code`). What lies between two decisions or calls is a
*straight-line segment*: a graph without control flow, which a backend compiles for the element kinds and shapes that
it meets (`segment`, `operators`). A machine with few instructions (`machine`) links the segments. Segments that ran are
taken back in reverse order for gradients.
"""

from glowpy.frontends.python.function import ProgramFunction, function

__all__ = ["ProgramFunction", "function"]
