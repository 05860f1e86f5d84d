"""What readers of every format need: moves of elements, numbers, extents, bounds, windows, and where nodes are made."""
