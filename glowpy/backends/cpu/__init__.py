"""The CPU backend: machine code from libjit's kernels, specialised by LLVM for one network."""
