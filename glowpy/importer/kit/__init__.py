"""Tools for readers of every format: moves of elements, numbers, extents, bounds, windows, and where nodes are made."""
