"""Mutation runs: which small wrong changes of the compiler do its tests notice? `python -m tools.mutate --help`.

* A *mutant* is the tree with one small wrong change. It is *noticed* if a test fails, crashes or
  hangs; else it *survives*.
* Listed mutants (tools/mutants/*.toml) were chosen by a reviewer and name the tests that notice them.
* Random mutants are made by cosmic-ray's operators in Python and by a few of our own in C, evenly over the areas.
* Every mutant lives in a copy of the tree in a temporary folder; the tree itself is only read.
"""
