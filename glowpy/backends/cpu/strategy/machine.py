"""Capabilities of the processors of a variant: the numbers that costs are made of, from libjit/variants.toml."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["Machine"]


@dataclass(frozen=True, slots=True)
class Machine:
    """One model for all processors of a variant, as they compute with one kind of element: floats, doubles, or bytes.

    Times are in cycles, sizes in bytes.

    Attributes:
        element_bytes: The size of one element of the input, or of the weights.
        dot: Neighbouring elements of the input that a step multiplies for each lane, and adds: 1 of floats, 4 of bytes.
        parts: Registers that the weights of a step take for each vector, and so does an element of the input. More than
            one: they are taken apart first, and multiplied part by part.
        lanes: Sums in a vector.
        vector_registers: How many vectors fit into registers at a time.
        pointer_registers: How many pointers the inner loop of a tile may hold beside its own variables.
        fused: Multiplication and addition are one instruction; a product needs no register of its own.
        multiplies: Fused multiply-adds (or multiplications) that start in a cycle.
        loads: Loads that start in a cycle.
        issue: Instructions of any kind that start in a cycle.
        latency: From a sum to the next one in the same register, with what is lost where nothing else is left to do.
        tile_overhead: Cycles to set up and store a tile, beside those for its vectors.
        first_cache: Weights of a block that the first-level cache keeps from tile to tile.
        second_cache: The same of the second-level cache, input that is to stay as well counted.
        second_rate: Bytes a cycle from the second-level cache.
        third_rate: Bytes a cycle from beyond it.
        slab_bytes: Input, or weights, that we count on finding again in the second-level cache.
        prefetch_bytes: Bytes that one prefetch fetches; 0 where prefetching is pointless.
        part_of_line: Cycles for each pixel of a tile whose results, as large as elements of the input, end within a
            line of the cache: it is read and written again for the next channels.
        hidden_stores: Vectors of a tile that are stored while the next one begins.
        store_cycles: For each vector of a tile beyond these.
        half_loads: Loads of half a vector that start in a cycle, where vectors are computed and stored as two halves:
            half of one takes half the time. 0 where they are not.
        is_half: This is the model for vectors of half as many lanes.
    """

    element_bytes: int
    dot: int
    parts: int
    lanes: int
    vector_registers: int
    pointer_registers: int
    fused: bool
    multiplies: float
    loads: float
    issue: float
    latency: float
    tile_overhead: float
    first_cache: int
    second_cache: int
    second_rate: float
    third_rate: float
    slab_bytes: int
    prefetch_bytes: int
    part_of_line: float
    hidden_stores: int = 0
    store_cycles: float = 1.0
    half_loads: float = 0.0
    is_half: bool = False

    @property
    def lane_bytes(self) -> int:
        """The weights of a lane in a step."""
        return self.element_bytes * self.dot

    @property
    def models(self) -> tuple[Machine, ...]:
        """Returns the model of whole vectors, and that of half as many lanes where vectors are computed in halves."""
        return (self, self.model(self.lanes // 2)) if self.half_loads else (self,)

    def model(self, lanes: int) -> Machine:
        """The model for vectors of so many lanes: all, or half of them."""
        if lanes == self.lanes:
            return self
        times = 2 if self.half_loads else 1
        return replace(
            self,
            lanes=lanes,
            multiplies=times * self.multiplies,
            loads=self.half_loads or self.loads,
            hidden_stores=times * self.hidden_stores,
            store_cycles=self.store_cycles / times,
            half_loads=0.0,
            is_half=True,
        )
