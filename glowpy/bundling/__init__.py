"""Ahead of time: bundles are made, verified against the interpreter, and loaded into Python.

What a bundle consists of, file by file, is in `glowpy.backends.cpu.bundle`.
"""
