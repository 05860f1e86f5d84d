"""Run time of compiled networks: memory of devices, executables in it, and calls by the host."""
