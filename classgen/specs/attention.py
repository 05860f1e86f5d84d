"""Attention whose memory has a fixed size: loops over steps."""

from classgen.dsl import FLOATS, Op

Op(
    "LinearAttention",
    "A state [K, V] for each head of keys, to which each step adds the outer product of its key and its value; the result is each query times the state after its step. Queries are [B, T, heads, K], keys [B, T, key heads, K] and values [B, T, key heads, V]; neighbouring heads of queries share one of keys. Where there are factors, [B, T, key heads, K or 1], they multiply the rows of the state first. Where there are rates, [B, T, key heads or 1], a value becomes rate * (value - key times the state).",
    inputs=["query", "key", "value", "factors", "rates", "initial"],
    results=["result", "last"],
    scratches=["added"],
    kernel={"query": FLOATS},
    no_derivative="that of its steps is not written yet",
)
