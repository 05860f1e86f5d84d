"""Random networks around what passes look for: `python -m tools.patterns [--seconds N] [--seed N] [--only NAME ..]`.

Each seed is a network of each pattern. It is computed by onnxruntime as it stands, by the interpreter, and by what the
passes of the CPU backend make of it for one of its variants: interpreted, and now and then as machine code, with one
thread and with several, or as a bundle. What differs is printed with the seed, and what was refused with the reason.
In the end there is a table of how often each pass did something, and of the instructions there were.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import onnx

import glowpy
from tools.patterns import images, quantized, transformers
from tools.patterns.network import Network
from tools.patterns.trial import DisagreementError, run_trial

PATTERNS: Mapping[str, Callable[[Network], None]] = {
    pattern.__name__: pattern
    for pattern in (
        transformers.attention, transformers.norm, transformers.gelu, transformers.merged_products,
        transformers.product, images.convolution, images.depthwise, images.few_channels, images.shuffle,
        images.transposed, images.resize, images.sums_of_gathers, images.pool, quantized.quantized_layers,
        quantized.byte_products,
    )
}  # fmt: skip


def network_of(name: str, seed: int) -> Network:
    """The network of a pattern for a seed."""
    network = Network(random.Random(f"{name} {seed}"))
    PATTERNS[name](network)
    return network


def main() -> None:
    """Tries networks until the time is over; exit status 1 if some differed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=0, help="of the first network")
    parser.add_argument(
        "--count", type=int, default=1 << 60, help="networks of each pattern at most"
    )
    parser.add_argument(
        "--code", type=float, default=0.3, help="part of the networks that become machine code"
    )
    parser.add_argument(
        "--bundles", type=float, default=0.02, help="part of them that become bundles"
    )
    parser.add_argument("--only", nargs="*", default=sorted(PATTERNS))
    parser.add_argument("--keep", type=Path, help="folder for models that differ")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    end, seed, bad = time.monotonic() + options.seconds, options.seed, 0
    tries: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    while time.monotonic() < end and seed < options.seed + options.count:
        for name in options.only:
            tries[name] += 1
            try:
                network = network_of(name, seed)
                model = network.model()
            except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
                refused[f"{name}: onnx: {str(error).splitlines()[-1][:110]}"] += 1
                continue
            try:
                run_trial(network, seed, counts, code=options.code, bundles=options.bundles)
            except glowpy.UserError as error:
                refused[f"{name}: {str(error).splitlines()[0][:150]}"] += 1
                continue
            except DisagreementError as error:
                sys.stdout.write(f"FOUND {name} {seed}: {error}\n")
            except Exception as error:  # noqa: BLE001 - whatever it is, it is to be reported
                frames = traceback.extract_tb(error.__traceback__)
                sys.stdout.write(
                    f"FOUND {name} {seed}: {error!r:.300} at {frames[-1].filename}:{frames[-1].lineno}\n"
                )
            else:
                continue
            bad += 1
            sys.stdout.flush()
            if options.keep:
                options.keep.mkdir(parents=True, exist_ok=True)
                onnx.save(model, options.keep / f"{name}-{seed}.onnx")
        seed += 1
    for title, table in (("tried", tries), ("refused", refused), ("did something", counts)):
        sys.stdout.write(
            f"{title}\n" + "".join(f"  {n:6} {what}\n" for what, n in sorted(table.items()))
        )
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
