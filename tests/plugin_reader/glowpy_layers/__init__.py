"""A reader for glowpy of networks that are written as a list of layers."""
