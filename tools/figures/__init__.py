"""Figures of compiled networks that no machine's speed decides: what was won stays won.

`table.yaml` has a row for each of some thirty networks: what their graphs, programs, memory and code come to.
`tests/e2e/test_figures.py` computes them again and names what differs and by how much;

    python -m tools.figures [ROW ...]                     prints the figures, and what differs
    python -m tools.figures --renew [ROW ...] [--why TEXT]  writes them; one that got worse needs its reason
    python -m tools.figures --models FOLDER               exports the networks again, with PyTorch
"""
