"""Measurements: what the machine reaches, what programs could reach on it, and which ways of computing are fastest.

What profilers are told about compiled code is here as well.
"""
