"""Measurements of a machine and of what runs there, for any backend: see `meter`.

`peaks` are those of a machine, `roofline` says how long runs take there at least, and `tuned` what tuning has found.
How the loops that measure a processor look, and in which ways it can compute a product, is the backend's.
"""
