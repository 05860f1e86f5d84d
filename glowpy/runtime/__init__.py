"""What runs compiled networks: memory of devices, executables in it, and how the host calls them."""
