"""Ahead of time: bundles are laid out and written file by file, verified against the interpreter, loaded into Python.

`make` begins with networks and `write` with programs; `read` and `load` begin with a folder, and import no compiler.
"""
