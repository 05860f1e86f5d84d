"""All that the Python side knows of each operator.

How types are inferred and verified, how nodes are lowered and translated, what instructions mean. Importing
this package fills the rule tables.
"""

from glowpy.ops import (
    activation,
    attention,
    blocks,
    control,
    control_gradients,
    conv,
    debug,
    elementwise,
    gather,
    image,
    image_gradients,
    instructions,
    matmul,
    ml,
    norm,
    pool,
    quant,
    random,
    recurrent,
    recurrent_gradients,
    reduce,
    search,
    shape,
    signal,
)

__all__ = [
    "activation",
    "attention",
    "blocks",
    "control",
    "control_gradients",
    "conv",
    "debug",
    "elementwise",
    "gather",
    "image",
    "image_gradients",
    "instructions",
    "matmul",
    "ml",
    "norm",
    "pool",
    "quant",
    "random",
    "recurrent",
    "recurrent_gradients",
    "reduce",
    "search",
    "shape",
    "signal",
]
