"""Networks as people write them in PyTorch, which tests and measurements export."""
