"""Debugging: how far outputs are from those of other runtimes, and what every instruction reads and writes."""
