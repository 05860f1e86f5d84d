"""Writes the classes, builders, C prototypes and reference of every operator from one declaration."""
