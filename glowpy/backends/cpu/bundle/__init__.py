"""Bundles: networks as an object file, a header and weights that need no runtime."""
