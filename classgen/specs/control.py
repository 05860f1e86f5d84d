"""Control flow: operators that call functions of the module, with operands by value.

A function that is called says what it takes and what it gives, in order: `function @body(%i, %x) -> (%keep, %x)`. `extents`
of an instruction are the symbols that the functions depend on.
"""

from classgen.dsl import InstOnly, NodeOnly, dim, dims, function, integer

NodeOnly(
    "Call",
    "The results of a function that takes all inputs. Its nodes are put in the place of the call before anything is optimized; where that cannot be, the call becomes an `if` that always holds.",
    inputs=["inputs"],
    attrs=[function("function")],
    traits=["codes"],
    variadic=True,
    many_results=True,
    quant="rule",
)
NodeOnly(
    "If",
    "The results of one of two functions: `then` if the first input, a bool scalar, is true, else `otherwise`. Both take all other inputs, and give results of the same types.",
    inputs=["inputs"],
    attrs=[function("then"), function("otherwise")],
    traits=["codes"],
    variadic=True,
    many_results=True,
    quant="rule",
)
NodeOnly(
    "Loop",
    "Calls `body` again and again: at most `limit` times, the first input, an i64 scalar, and while `keep` holds, the second, a bool scalar. Then come `carried` values, and what is the same in every round. The body takes the number of the round, an i64 scalar, the carried values, and the rest; it gives the next `keep`, the next carried values, and elements that are stacked. Results are the carried values, the stacked elements of all rounds, with room for `room`, and the i64 count of rounds, of which there are at most `room` if anything is stacked.",
    inputs=["inputs"],
    attrs=[function("body"), integer("carried"), dim("room")],
    traits=["codes"],
    variadic=True,
    many_results=True,
    quant="rule",
)
InstOnly(
    "If",
    "Calls `then` if the condition holds, else `otherwise`, in a frame that has room for the memory of either.",
    results=["result"],
    inputs=["condition", "input"],
    scratches=["frame"],
    times={"result": "results", "input": "rest"},
    attrs=[function("then"), function("otherwise"), integer("results"), dims("extents", optional=True)],
    traits=["codes"],
    quant="rule",
)
InstOnly(
    "Loop",
    "Calls `body` at most `limit` times, and while `keep` holds, in a frame that has room for its memory. It writes what is carried where it was, and one element of everything that is stacked after the other.",
    results=["stacked", "count"],
    inouts=["carried"],
    inputs=["limit", "keep", "input"],
    scratches=["frame"],
    times={"stacked": "results", "carried": "variables", "input": "rest"},
    attrs=[function("body"), integer("results"), integer("variables"), dims("extents", optional=True)],
    traits=["codes"],
    quant="rule",
)
