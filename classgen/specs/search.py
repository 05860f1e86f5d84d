"""Finding elements. How many there are is known when the network runs.

Results have room for the most, and `count` says how many rows of theirs are defined. The node `define` makes an extent of it.
"""

from classgen.dsl import ALL, DISCRETE, NUMBERS, Op, dim, flag, integer


def _integers(*names: str) -> dict[str, dict[str, str]]:
    """Operands of i64, whatever the kernel's kind is."""
    return {kind: dict.fromkeys(names, "i64") for kind in ALL}


Op(
    "NonZero",
    "The places of the elements that are not zero, in row-major order: a row of i64 for each, with its index in every dimension. The i64 `count` of them.",
    inputs=["input"],
    results=["result", "count"],
    kernel={"input": ALL},
    mixed=_integers("result", "count"),
    no_derivative=DISCRETE,
)
Op(
    "Unique",
    "The different rows of a matrix: in ascending order if `sorted`, else as they come. The i64 row where each one is first, which different row each row is (`inverse`), how often each one occurs (`counts`), and the `count` of them. Zeros are equal, and so are NaNs, which come last.",
    inputs=["input"],
    results=["result", "inverse", "counts", "count"],
    attrs=[flag("sorted")],
    scratches=["memory"],
    kernel={"input": ALL},
    mixed=_integers("result", "inverse", "counts", "count", "memory"),
    no_derivative=DISCRETE,
)
Op(
    "TopK",
    "The `k` `largest` or smallest elements along dimension `axis`, the most extreme first, and their i64 indices. Of equal ones the first comes first; NaN is larger than all numbers.",
    inputs=["input"],
    results=["result", "indices"],
    attrs=[integer("axis"), dim("k"), flag("largest")],
    scratches=["memory"],
    kernel={"input": NUMBERS},
    mixed={kind: {"indices": "i64", "memory": "i64"} for kind in NUMBERS},
)
Op(
    "NonMaxSuppression",
    "The boxes that are kept of each class of each image, as ONNX says: rows of i64 with image, class and box, the highest score first, of equal ones the first box. At most `limit` boxes of a class, none with a score of `threshold` or less, and none that shares more than `overlap` of the union with one that is kept before it. Boxes are y1, x1, y2, x2, or x, y, width and height if they are given by `centers`. There is room for `room` rows. The i64 `count` of them.",
    inputs=["boxes", "scores", "limit", "overlap", "threshold"],
    results=["result", "count"],
    attrs=[flag("centers"), integer("room")],
    scratches=["order", "kept"],
    kernel={"boxes": ("f32",)},
    mixed={"f32": dict.fromkeys(("result", "count", "limit", "order"), "i64")},
    no_derivative=DISCRETE,
)
