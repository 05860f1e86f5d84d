"""Operators of scikit-learn's models that no other operator computes."""

from classgen.dsl import DISCRETE, FLOATS, Op, flag, integer

Op(
    "TreeEnsemble",
    "The predictions of decision trees for each row of a matrix: for each of so many targets the sum, or if `greatest` the greatest, of what the leaves have that the row comes to, one in each tree. A row of `branches` is a feature and two children: a row goes to the first if that feature is not above the threshold, else to the second. A child of at least 0 is a branch after this one; below, it is the leaf ~child, a row of `weights`. A row of `trees` is a root, which is as a child, and the target that the first weight of its leaves is for. Where branches may send a `missing` feature, a NaN, to the first child, they have the feature ~feature; all others send it to the second. For the greatest, a weight of NaN is none, and a target without any gets 0.",
    inputs=["input", "branches", "thresholds", "trees", "weights"],
    attrs=[integer("targets"), flag("greatest"), flag("missing")],
    kernel={"input": FLOATS},
    mixed={kind: {"branches": "i32", "trees": "i32"} for kind in FLOATS},
    no_derivative="it is constant between thresholds",
)
Op(
    "Find",
    "The place of each element among keys, a vector in ascending order, in i64; the number of keys where it is none of them. A NaN comes after all numbers, and is equal to any other.",
    inputs=["input", "keys"],
    kernel={"input": (*FLOATS, "i64")},
    mixed={kind: {"result": "i64"} for kind in (*FLOATS, "i64")},
    no_derivative=DISCRETE,
)
Op(
    "CouplePairs",
    "Probabilities of n classes for each row, from those of the first of every two classes: (0, 1), (0, 2), ..., (1, 2), ..., each above 0 and below 1. The second method of Wu, Lin and Weng (2004), which improves 1 / n step by step until no error is 0.005 / n or more, at most max(100, n) times, as LIBSVM has it.",
    inputs=["input"],
    scratches=["matrix"],
    kernel={"input": ("f64",)},
    no_derivative="how often it improves depends on the elements",
)
