"""Graph passes of the CPU backend: they bring in its own nodes, after lowering."""
