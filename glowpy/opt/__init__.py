"""Optimizations: one pass a file, `graph/` and `ir/`; their order is in `pipelines`."""
