"""Benchmarks of models: timed as a whole, run by run of their instructions, and beside other runtimes."""
