"""The backends: `interpreter` (numpy, the reference meaning) and `cpu` (machine code)."""
