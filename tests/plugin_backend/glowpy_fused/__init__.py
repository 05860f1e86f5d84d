"""A backend for glowpy: the CPU backend with two kernels more."""
