"""PyTorch: a backend of torch.compile, and the layers that it replaces before networks are exported."""
