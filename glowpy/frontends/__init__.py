"""Frontends: networks that are written as programs, not read from files."""
