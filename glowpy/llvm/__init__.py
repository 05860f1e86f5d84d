"""The seam to LLVM that any backend for an LLVM target stands on: it knows what no processor costs.

- `machine` is LLVM itself: targets, optimization, machine code, code loaded into this process.
- `writer` builds modules as text; `head` says how functions begin; `debug_info` adds DWARF.
- `runs` writes the functions of a program's runs: `stack` those that are loops, `builtin` what needs no kernel. For all
  else a target says what is called.
- `entry` writes the functions that C programs call, as `code_options` says, with results of `status`: `tasks` shares
  their work among threads, `control` calls functions of the network, `instrument` calls back around instructions, and
  `constant_block` says where constants are. Bundles are made of them by a backend that has a `bundle_compiler`.
- `variant` says how kernels in C are compiled, `library` compiles them and keeps the bitcode, `kernels` are those that
  there are for one variant; `kernel` says which symbol an instruction has, `scalars_gen` those of an element.
- `objects` makes object files of texts, several at a time, through the cache; `object_file` reads and edits them.
"""
