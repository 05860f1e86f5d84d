"""Element kinds, types, tensors: what both IRs speak about."""
