"""The seam to LLVM that any backend for an LLVM target stands on: it knows of no processor and of no kernel library.

- `machine` is LLVM itself: targets, optimization, machine code, code loaded into this process.
- `writer` builds modules as text; `debug_info` adds DWARF.
- `kernel` says which symbol an instruction calls; `stack` writes the loops over runs of element-wise instructions.
- `objects` makes object files of texts, several at a time, through the cache.
"""
