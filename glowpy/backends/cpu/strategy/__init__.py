"""Strategies: how the CPU backend computes a product.

A *problem* is what is to be computed, a *machine* what one variant's processors can do, a *decision* all that is free:
tiles, slabs, prefetching. Candidates have modelled costs, the cheapest is taken, and every part of it is an attribute
of the instruction. libjit obeys: it derives from the sizes what they say of an image, and has nothing to choose.
"""
