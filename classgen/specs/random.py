"""Random numbers, which follow from a key and from where they stand: every run draws the same, on every backend."""

from classgen.dsl import Op, ints

Op(
    "RandomBits",
    "32 random bits in each element, by Philox 4x32-10 (Salmon et al. 2011): element i is word i % 4 of what the counter i / 4 gives under `key`, two numbers of "
    "31 bits.",
    inputs=[],
    attrs=[ints("key")],
    traits=["typed"],
    kernel={"result": ("u32",)},
)
