"""glowpy bundle and glowpy verify: what they write, print, refuse, and exit with."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from glowpy import BundleOptions, Module, parse_type
from glowpy.bundling.link import runner
from glowpy.bundling.make import bundle
from glowpy.bundling.read import manifest_digest, read_bundle
from glowpy.bundling.verify import verify_bundle
from glowpy.cli.files import write_constants
from glowpy.graph.printer import print_module
from tests.bundles.networks import glow, make, mlp, need, relu


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file with a small model, whose name is no identifier."""
    path = tmp_path / "my-net.2.glow"
    path.write_text(print_module(relu()))
    return path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_bundle_takes_its_name_from_the_file(model: Path, tmp_path: Path) -> None:
    status, printed, errors = glow("bundle", model, "-o", tmp_path / "out", "--target", "rpi4")
    assert (status, errors) == (0, "")
    assert "my_net_2 for aarch64-unknown-linux-gnu" in printed
    assert "activations" in printed
    assert {"my_net_2.o", "my_net_2.h", "my_net_2.json", "main.c"} <= names(tmp_path / "out")


def test_no_table_of_code_where_no_instruction_has_any(tmp_path: Path) -> None:
    """Such as a network that only copies its input."""
    module = Module()
    x, y = (module.create_placeholder(name, parse_type("f32[8]")) for name in "xy")
    module.create_function("main").create_save("save", x, y)
    path = tmp_path / "copy.glow"
    path.write_text(print_module(module))
    status, printed, _ = glow("bundle", path, "-o", tmp_path / "out")
    assert (status, "Most code" in printed) == (0, False)


def test_help_says_what_may_be_chosen() -> None:
    _, printed, _ = glow("bundle", "--help")
    assert "--float-abi [soft|hard]" in printed
    assert "--relocation [static|pic]" in printed
    status, _, errors = glow("bundle", "a.glow", "-o", "out", "--float-abi", "firm")
    assert (status, "'firm' is not one of 'soft', 'hard'" in errors) == (1, True)


def test_json(model: Path, tmp_path: Path) -> None:
    status, printed, _ = glow(
        "bundle", model, "-o", tmp_path / "out", "--json", "--cpu", "x86-64-v2"
    )
    report = json.loads(printed)
    assert status == 0
    assert set(report["files"]) == names(tmp_path / "out")
    assert report["target"]["cpu"] == "x86-64-v2"
    assert report["sizes"]["mutable"] == 128
    assert report["sizes"]["flash"] == sum(
        report["sizes"][part] for part in ("text", "rodata", "weights")
    )


def test_every_option_reaches_the_bundle(model: Path, tmp_path: Path) -> None:
    words = [
        *("--api", "dynamic", "--emit", "lib", "--weights", "embedded", "--selftest", "2"),
        *(
            "--guard",
            "--debug",
            "--instrument-debug",
            "--parallel",
            "--max-ram",
            "1M",
            "--max-flash",
            "64K",
        ),
    ]
    chosen = BundleOptions(
        name="n",
        api="dynamic",
        emit="lib",
        weights="embedded",
        selftest=2,
        guard=True,
        debug=True,
        instrument="debug",
        parallel=True,
        max_ram=1 << 20,
        max_flash=64 << 10,
    )
    for options, expected in (([], BundleOptions("n")), (words, chosen)):
        out = tmp_path / f"out{len(options)}"
        status, _, errors = glow(
            "bundle", model, "-o", out, "--name", "n", "--cpu", "x86-64-v2", *options
        )
        assert (status, errors) == (0, "")
        assert read_bundle(out).options == expected


def test_several_models_are_named_after_their_files(model: Path, tmp_path: Path) -> None:
    other = tmp_path / "9 other.glow"
    other.write_bytes(model.read_bytes())
    options = ("--name", "n", "--emit", "llvm", "--cpu", "x86-64-v2")
    status, _, errors = glow("bundle", model, other, "-o", tmp_path / "out", *options)
    assert (status, errors) == (0, "")
    header = (tmp_path / "out" / "n.h").read_text()
    assert "n_my_net_2(" in header
    assert "n__9_other(" in header


@pytest.mark.parametrize(
    ("emit", "weights", "files"),
    [
        ("obj", "file", {"n.o", "n.weights.bin", "main.c", "CMakeLists.txt"}),
        ("lib", "header", {"libn.a", "n.weights.h", "main.c", "CMakeLists.txt"}),
        ("asm", "file", {"n.s", "n.weights.bin"}),
        ("llvm", "header", {"n.ll", "n.weights.h"}),
    ],
)
def test_emit(emit: str, weights: str, files: set[str], model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ("--name", "n", "--emit", emit, "--weights", weights)
    status, _, errors = glow("bundle", model, "-o", out, "--target", "rpi4", *options)
    assert (status, errors) == (0, "")
    assert names(out) == {"n.h", "n.ir", "n.json", "n.weights.txt", *files}
    text = {"asm": (".globl", "n.s"), "llvm": ("define", "n.ll")}.get(emit)
    if text is not None:
        assert text[0] in (out / text[1]).read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "expected either -o FOLDER or --check FOLDER"),
        (["-o", "out", "--name", "2nd"], "expected a C identifier as the bundle's name, got '2nd'"),
        (["-o", "out", "--target", "rpi9"], "expected a preset or a triple"),
        (["-o", "out", "--max-ram", "12X"], "expected a number of bytes such as 65536, 64K or 1M"),
        (["-o", "out", "--max-ram", "0"], "bytes of RAM, expected at most 0"),
        (["-o", "out", "--max-flash", "0"], "bytes of flash, expected at most 0"),
        (["-o", "out", "--target", "cortex-m5"], "glowpy targets lists presets and families"),
        (["-o", "out", "--emit", "asm", "--weights", "embedded"], "a text cannot hold the weights"),
        (["-o", "out", "--emit", "shared", "--target", "cortex-m4"], "position-independent code"),
        (["-o", "out", "--emit", "asm", "--max-ram", "1M"], "the size of a text says nothing"),
        (["-o", "out", "--instrument-ir", "--instrument-debug"], "expected at most one of"),
        (["-o", "out", "my-net.2.glow"], "expected models with different names, got 'my_net_2'"),
        (["--check", "out"], "expected a bundle's NAME.json"),
    ],
)
def test_refusals(
    words: list[str], message: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, _, errors = glow("bundle", model.name, *words)
    assert status == 1
    assert message in errors
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("limit", "blamed"),
    [("--max-flash", "cpu_matmul 'first"), ("--max-ram", "most is alive at")],
)
@pytest.mark.parametrize("target", ["cortex-m7", "wasm"])
def test_budgets_name_what_takes_most(target: str, limit: str, blamed: str, tmp_path: Path) -> None:
    models = tmp_path / "net.glow"
    module = mlp(rows=32)  # with more activations than the stack that a product takes
    models.write_text(print_module(module))
    write_constants(tmp_path / "net.npz", module.constants)
    words = ("bundle", models, "--constants", tmp_path / "net.npz", "-o", tmp_path / "out")
    status, _, errors = glow(*words, "--target", target, limit, "100")
    assert status == 1
    assert "expected at most 100" in errors
    assert blamed in errors
    assert not (tmp_path / "out").exists()
    assert sorted(names(tmp_path)) == ["net.glow", "net.npz"]
    assert glow(*words, "--target", target, limit, "64K")[0] == 0


def test_a_place_that_cannot_be_written(model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "out" / "my_net_2.h").mkdir(parents=True)
    for place, reason in (
        (tmp_path / "file", f"expected a folder to write to, '{tmp_path / 'file'}' is none"),
        (tmp_path / "file" / "below", f"expected a folder to write to, '{tmp_path / 'file'}'"),
        (tmp_path / "out", "cannot write the bundle: expected a file or nothing there"),
    ):
        status, _, errors = glow("bundle", model, "-o", place, "--target", "rpi4")
        assert (status, reason in errors) == (1, True), errors
        assert str(place) in errors
    assert (tmp_path / "file").read_text() == "mine"
    assert names(tmp_path) == {"file", "out", model.name}


def test_check(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("--target", "rpi4", "--guard", "--relocation", "static", "--name", "n")
    assert glow("bundle", model, "-o", out, *words)[0] == 0
    assert glow("bundle", model, "--check", out) == (0, "n is up to date\n", "")
    header = out / "n.h"
    header.write_text(header.read_text() + "\n")
    (out / "n.weights.txt").unlink()
    status, printed, _ = glow("bundle", model, "--check", out)
    assert status == 1
    assert sorted(printed.splitlines()) == ["n.h was modified", "n.weights.txt is missing"]
    assert glow("verify", out)[0] == 1
    assert glow("bundle", model, "-o", out, *words)[0] == 0
    manifest = (out / "n.json").read_text()
    (out / "n.json").write_text(manifest.replace('"activations": ', '"activations": 1'))
    status, _, errors = glow("bundle", model, "--check", out)
    assert (status, "n.json: the manifest was modified" in errors) == (1, True), errors
    (out / "n.json").write_text(manifest)
    model.write_text(model.read_text().replace("f32[8]", "f32[9]"))
    status, printed, _ = glow("bundle", model, "--check", out, "--json")
    assert status == 1
    report = json.loads(printed)
    assert not report["up_to_date"]
    assert ["the model" in reason for reason in report["reasons"]] == [True]


def test_several_networks_share_weights(tmp_path: Path) -> None:
    need("cc")
    both = bundle(
        {"a": mlp(1), "b": mlp(2)}, tmp_path / "both", BundleOptions("both", api="dynamic")
    )
    alone = bundle(mlp(1), tmp_path / "one", BundleOptions("one"))
    assert both.report is not None
    assert alone.report is not None
    assert alone.report.weights < both.report.weights < 2 * alone.report.weights
    assert both.report.arena == alone.report.arena
    verification = verify_bundle(tmp_path / "both")
    assert verification.passed
    assert {(check.network, check.output) for check in verification.checks} == {
        (network, output) for network in ("both_a", "both_b") for output in ("scores", "y")
    }


def test_verify_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "m7", "cortex-m7")
    status, _, errors = glow("verify", tmp_path / "m7")
    assert status == 3
    assert "needs a linker script and startup code" in errors
    make(tmp_path / "asm", "rpi4", emit="asm")
    assert glow("verify", tmp_path / "asm")[0] == 3
    make(tmp_path / "rpi4", "rpi4")
    monkeypatch.setenv("PATH", "")
    status, printed, errors = glow("verify", tmp_path / "rpi4", "--json")
    assert status == 3
    assert "no qemu-aarch64" in errors
    assert "install QEMU" in json.loads(printed)["reason"]
    make(tmp_path / "wasm", "wasm")
    assert "install Node" in glow("verify", tmp_path / "wasm")[2]


def test_emulators_have_two_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian's qemu-user-static calls them qemu-aarch64-static."""
    program = tmp_path / "qemu-aarch64-static"
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert runner("aarch64-linux-gnu") == [str(program)]


def replace(folder: Path, file: str, text: str) -> None:
    """Changes a file, and the manifest so that it does not show."""
    (folder / file).write_text(text)
    manifest = json.loads((folder / "net.json").read_text())
    manifest["files"][file] = hashlib.sha256(text.encode()).hexdigest()
    manifest["digest"] = manifest_digest(manifest)
    (folder / "net.json").write_text(json.dumps(manifest))


def test_verify_finds_a_wrong_result(tmp_path: Path) -> None:
    need("cc")
    make(tmp_path)
    assert glow("verify", tmp_path)[0] == 0
    text = (tmp_path / "net.ir").read_text()
    wrong = text.replace("max @out", "min @out", 1)
    assert wrong != text
    replace(tmp_path, "net.ir", wrong)
    status, printed, _ = glow("verify", tmp_path)
    assert status == 1
    assert "WRONG" in printed


def test_verify_repeats_what_a_failing_example_says(tmp_path: Path) -> None:
    need("cc")
    make(tmp_path)
    main = (tmp_path / "main.c").read_text()
    last = "  return 0;\n}\n"
    assert main.endswith(last)
    failing = main.removesuffix(last) + '  fprintf(stderr, "out of luck\\n");\n  return 7;\n}\n'
    replace(tmp_path, "main.c", failing)
    status, _, errors = glow("verify", tmp_path)
    assert status == 1
    assert "ends with 7: out of luck" in errors
