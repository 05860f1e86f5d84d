"""The seam to LLVM that any backend for an LLVM target stands on: it knows of no processor and of no kernel library.

- `machine` is LLVM itself: targets, optimization, machine code, code loaded into this process.
- `writer` builds modules as text; `head` says how functions begin; `debug_info` adds DWARF.
- `runs` writes the functions of a program's runs: `stack` those that are loops, `builtin` what needs no kernel. For all
  else a target says what is called; `kernel` says which symbol an instruction has.
- `objects` makes object files of texts, several at a time, through the cache.
"""
