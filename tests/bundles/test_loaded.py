"""Shared bundles run from Python: right results, one clear error for each thing that can be wrong."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glowpy
from glowpy import BundleOptions, Function, InternalError, LoadError, Module, UserError
from glowpy.bundling import host
from glowpy.bundling.load import LoadedBundle, load_bundle
from glowpy.bundling.make import random_inputs
from glowpy.bundling.options import WeightsPlace
from glowpy.bundling.read import FORMAT, manifest_digest
from glowpy.core.tensor import Array
from glowpy.core.type import parse_type
from glowpy.runtime.host_memory import aligned_array

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="shared bundles are linked for Linux"
)


def mlp(scale: float = 1.0) -> Module:
    """Two layers, an integer input that selects rows, and two outputs."""
    module = Module()
    generator = np.random.default_rng(7)
    x = module.create_placeholder("x", parse_type("f32[6x8]"))
    rows = module.create_placeholder("rows", parse_type("i64[3]"))
    f = module.create_function("main")
    weights = generator.standard_normal((8, 5), dtype=np.float32) * np.float32(scale)
    hidden = f.create_relu(
        "relu", f.create_mat_mul("product", x, module.create_constant("w", weights))
    )
    picked = f.create_gather("gather", hidden, rows, 0)
    f.create_save("s0", hidden, module.create_placeholder("hidden", hidden.result.type))
    f.create_save("s1", picked, module.create_placeholder("picked", picked.result.type))
    return module


def inputs(seed: int = 0) -> dict[str, Array]:
    generator = np.random.default_rng(seed)
    return {
        "x": generator.standard_normal((6, 8), dtype=np.float32),
        "rows": generator.integers(0, 6, 3),
    }


def check_mlp(bundle: LoadedBundle, module: Module, seed: int = 0) -> None:
    expected = glowpy.compile(module, "interpreter")(inputs(seed))
    outputs = bundle(inputs(seed))
    assert list(outputs) == ["hidden", "picked"]
    for name, array in expected.items():
        np.testing.assert_allclose(outputs[name], array, rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with its weights in a file. Not to be changed."""
    folder = tmp_path_factory.mktemp("original")
    glowpy.bundle(mlp(), folder, BundleOptions("mlp", emit="shared"))
    return folder


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Path:
    """The same, to be damaged."""
    return Path(shutil.copytree(original, tmp_path / "copy"))


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes the manifest, and its digest so that it does not show."""
    path = folder / "mlp.json"
    fields = json.loads(path.read_text(encoding="utf-8"))
    change(fields)
    fields["digest"] = manifest_digest(fields)
    path.write_text(json.dumps(fields), encoding="utf-8")


def test_a_manifest_that_was_modified(copy: Path) -> None:
    """Smaller areas than the library needs would let it write over other memory."""
    path = copy / "mlp.json"
    fields = json.loads(path.read_text(encoding="utf-8"))
    fields["areas"]["activations"] -= 64
    path.write_text(json.dumps(fields), encoding="utf-8")
    with pytest.raises(LoadError, match="the manifest was modified"):
        load_bundle(copy)


@pytest.mark.parametrize("weights", ["file", "embedded"])
def test_bundles_compute_what_the_interpreter_does(weights: WeightsPlace, tmp_path: Path) -> None:
    glowpy.bundle(mlp(), tmp_path, BundleOptions("mlp", emit="shared", weights=weights, guard=True))
    bundle = load_bundle(str(tmp_path))
    assert {name: str(type) for name, type in bundle.inputs.items()} == {
        "x": "f32[6x8]",
        "rows": "i64[3]",
    }
    assert {name: str(type) for name, type in bundle.outputs.items()} == {
        "hidden": "f32[6x5]",
        "picked": "f32[3x5]",
    }
    ports = "x f32[6x8], rows i64[3] -> hidden f32[6x5], picked f32[3x5]"
    assert repr(bundle) == f"<LoadedBundle 'mlp' of mlp: {ports}>"
    check_mlp(bundle, mlp(), seed=1)
    check_mlp(bundle, mlp(), seed=2)


def test_nothing_but_numpy_and_its_small_floats_is_imported(original: Path) -> None:
    """Besides what setuptools puts into every process of an environment that has it."""
    code = (
        "import sys, glowpy, numpy as np\n"
        f"bundle = glowpy.load_bundle({str(original)!r})\n"
        "bundle({'x': np.ones((6, 8), np.float32), 'rows': np.zeros(3, np.int64)})\n"
        "tops = {m.split('.')[0] for m, module in sys.modules.items()"
        " if 'site-packages' in (getattr(module, '__file__', None) or '')}\n"
        "print(*sorted(tops - {'glowpy', 'numpy', 'ml_dtypes', '_distutils_hack'}),"
        " *sorted(m for m in sys.modules"
        " if m.startswith(('glowpy.ops', 'glowpy.engine', 'glowpy.backends.cpu.codegen'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""


def test_wrong_arrays_are_refused_as_compiled_functions_do(original: Path) -> None:
    compiled, bundle = glowpy.compile(mlp()), load_bundle(original)
    good = inputs()
    cases: list[dict[str, Array]] = [
        {"x": good["x"]},
        {**good, "z": good["x"]},
        {**good, "x": good["x"].astype(np.float64)},
        {**good, "x": good["x"][:5]},
        {**good, "rows": good["rows"].astype(np.int32)},
    ]
    for case in cases:
        with pytest.raises(UserError) as expected:
            compiled(case)
        with pytest.raises(UserError) as caught:
            bundle(case)
        assert str(caught.value) == str(expected.value)
    check_mlp(bundle, mlp())


def test_instances_bind_arrays_of_the_caller(original: Path) -> None:
    bundle = load_bundle(original)
    instance, arrays = bundle.instance(), inputs(3)
    result = np.zeros((3, 5), np.float32)
    instance.bind("x", arrays["x"])
    instance["rows"][:] = arrays["rows"]
    instance.bind("picked", result)
    instance.run()
    np.testing.assert_array_equal(result, bundle(arrays)["picked"])
    assert result.any()


def test_threads_have_memory_of_their_own(original: Path) -> None:
    bundle = load_bundle(original)
    expected = [bundle(inputs(seed))["hidden"] for seed in range(24)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda seed: bundle(inputs(seed))["hidden"], range(24)))
    for one, other in zip(expected, results, strict=True):
        np.testing.assert_array_equal(one, other)


def scaled(module: Module, name: str, factor: float) -> Function:
    f = module.create_function(name)
    x = module.create_placeholder(f"{name}_x", parse_type("f32[4]"))
    scale = module.create_constant(f"{name}_k", np.full(4, factor, np.float32))
    product = f.create_mul("mul", x, scale)
    f.create_save("save", product, module.create_placeholder(f"{name}_y", product.result.type))
    return f


def test_a_bundle_of_several_networks(tmp_path: Path) -> None:
    module = Module()
    scaled(module, "two", 2)
    scaled(module, "three", 3)
    glowpy.bundle(module, tmp_path, BundleOptions("both", emit="shared"))
    bundle = load_bundle(tmp_path)
    assert list(bundle.networks) == ["both_two", "both_three"]
    ones = np.ones(4, np.float32)
    np.testing.assert_array_equal(bundle.networks["both_two"]({"two_x": ones})["two_y"], 2 * ones)
    np.testing.assert_array_equal(
        bundle.networks["both_three"]({"three_x": ones})["three_y"], 3 * ones
    )
    for use in (lambda: bundle.inputs, lambda: bundle({"two_x": ones}), bundle.instance):
        with pytest.raises(UserError, match="several networks: both_two, both_three"):
            use()


def test_a_placeholder_can_be_input_and_output(tmp_path: Path) -> None:
    module = Module()
    state = module.create_placeholder("state", parse_type("f32[3]"))
    f = module.create_function("main")
    f.create_save("save", f.create_add("sum", state, state), state)
    glowpy.bundle(module, tmp_path, BundleOptions("twice", emit="shared"))
    bundle = load_bundle(tmp_path)
    outputs = bundle({"state": np.array([1, 2, 3], np.float32)})
    np.testing.assert_array_equal(outputs["state"], [2, 4, 6])


@pytest.mark.parametrize("type", ["f32[]", "f32[0x3]", "bf16[5]", "bool[7]", "i8[3]", "f8e5m2[3]"])
def test_networks_without_weights_of_every_shape(type: str, tmp_path: Path) -> None:
    module = Module()
    x = module.create_placeholder("x", parse_type(type))
    f = module.create_function("main")
    f.create_save("save", x, module.create_placeholder("y", x.type))
    glowpy.bundle(module, tmp_path, BundleOptions("same", emit="shared"))
    array = np.ones(x.type.extents, x.type.kind.dtype)
    result = load_bundle(tmp_path)({"x": array})["y"]
    assert result.dtype == array.dtype
    np.testing.assert_array_equal(result, array)


def test_a_selftest_runs_if_there_is_one(original: Path, tmp_path: Path) -> None:
    options = BundleOptions("mlp", emit="shared", weights="embedded", selftest=2)
    glowpy.bundle(mlp(), tmp_path, options)
    load_bundle(tmp_path).selftest()
    with pytest.raises(UserError, match="no self-test"):
        load_bundle(original).selftest()


def test_a_bundle_made_again_in_its_folder_is_loaded_anew(tmp_path: Path) -> None:
    for weights in ("file", "embedded"):
        for scale in (1.0, 2.0, 1.0):
            where = tmp_path / weights
            options = BundleOptions("mlp", emit="shared", weights=weights)
            glowpy.bundle(mlp(scale), where, options)
            check_mlp(load_bundle(where), mlp(scale))


def patch_library(folder: Path, old: bytes, new: bytes) -> None:
    """Replaces bytes that are there once, and says so in the manifest."""
    path = folder / "libmlp.so"
    content = path.read_bytes()
    assert content.count(old) == 1
    content = content.replace(old, new)
    path.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    edit(folder, lambda fields: fields["files"].update({"libmlp.so": digest}))


def test_a_selftest_finds_another_result(tmp_path: Path) -> None:
    options = BundleOptions("mlp", emit="shared", weights="embedded", selftest=1)
    glowpy.bundle(mlp(), tmp_path, options)
    interpreted = glowpy.compile(mlp(), "interpreter")
    ports = interpreted.input_ports
    golden = interpreted({port.name: random_inputs(ports, 0)[port.placeholder] for port in ports})[
        "hidden"
    ]
    patch_library(tmp_path, golden.tobytes(), (golden + 1).tobytes())
    with pytest.raises(InternalError, match="returned 5: an output differs from the golden one"):
        load_bundle(tmp_path).selftest()


def test_corrupted_embedded_weights(tmp_path: Path) -> None:
    glowpy.bundle(mlp(), tmp_path, BundleOptions("mlp", emit="shared", weights="embedded"))
    glowpy.bundle(mlp(), tmp_path / "file", BundleOptions("mlp", emit="shared"))
    stored = (tmp_path / "file" / "mlp.weights.bin").read_bytes()
    patch_library(tmp_path, stored, bytes([stored[0] ^ 1]) + stored[1:])
    fails(tmp_path, "the constants are not this network's weights", "bundle the model again")


def test_a_status_becomes_an_error_with_its_meaning(original: Path) -> None:
    (network,) = load_bundle(original).networks.values()
    instance = network.instance()
    arrays = {port.placeholder: instance[port.name] for port in network.input_ports}
    arrays |= {port.placeholder: instance[port.name] for port in network.output_ports}
    arena = aligned_array(network.arena_size + 64)
    with pytest.raises(InternalError, match="mlp returned 2: an area does not begin at a multiple"):
        network.execute(arrays, arena[4:], {})


def test_a_folder_holds_one_bundle(original: Path, copy: Path) -> None:
    module = Module()
    scaled(module, "main", 4)
    with pytest.raises(UserError, match="the folder holds the bundle mlp"):
        glowpy.bundle(module, copy, BundleOptions("other", emit="shared"))
    check_mlp(load_bundle(copy), mlp())
    (copy / "other.json").write_bytes((original / "mlp.json").read_bytes())
    with pytest.raises(LoadError, match="expected one bundle, got mlp, other"):
        load_bundle(copy)


def test_a_new_bundle_leaves_nothing_of_the_old_one(copy: Path) -> None:
    (copy / "notes.txt").write_text("mine")
    result = glowpy.bundle(mlp(), copy, BundleOptions("mlp", weights="embedded"))
    assert {path.name for path in copy.iterdir()} == {*result.files, "notes.txt"}


def fails(folder: Path, message: str, note: str = "", error: type[UserError] = LoadError) -> None:
    """Loading says so, in one diagnostic."""
    with pytest.raises(error, match=message) as caught:
        load_bundle(folder)
    (diagnostic,) = caught.value.diagnostics
    assert note in diagnostic.note


def test_missing_files(copy: Path, tmp_path: Path) -> None:
    (copy / "mlp.weights.bin").rename(copy / "elsewhere")
    fails(
        copy,
        r"mlp\.weights\.bin: cannot read a file of bundle 'mlp': No such file",
        "put it beside the manifest",
    )
    (copy / "libmlp.so").unlink()
    fails(copy, r"libmlp\.so: cannot read a file", "--emit shared")
    (copy / "mlp.json").unlink()
    fails(copy, "expected a bundle's NAME.json")
    with pytest.raises(LoadError, match=r"expected a bundle's NAME\.json"):
        load_bundle(tmp_path / "nowhere")


def damage(path: Path) -> str:
    """Flips a bit, and returns the digest of what is there now."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def test_corrupted_weights(copy: Path) -> None:
    digest = damage(copy / "mlp.weights.bin")
    fails(copy, r"mlp\.weights\.bin: the file is damaged", "bundle the model again")
    edit(copy, lambda fields: fields["files"].update({"mlp.weights.bin": digest}))
    fails(copy, "the constants are not this network's weights", "bundle the model again")


def test_a_damaged_library_is_not_loaded(copy: Path) -> None:
    damage(copy / "libmlp.so")
    fails(copy, r"libmlp\.so: the file is damaged")


def test_weights_in_a_header(tmp_path: Path) -> None:
    glowpy.bundle(mlp(), tmp_path, BundleOptions("mlp", emit="shared", weights="header"))
    fails(tmp_path, "in a C header", "--weights embedded", UserError)


def test_a_bundle_without_a_library(tmp_path: Path) -> None:
    glowpy.bundle(mlp(), tmp_path, BundleOptions("mlp"))
    fails(tmp_path, r"made without libmlp\.so", "--emit shared")


@pytest.mark.parametrize(
    "triple", ["aarch64-linux-gnu", "x86_64-unknown-none", "wasm32-wasi", "thumbv7em-none-eabihf"]
)
def test_another_machine(copy: Path, triple: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    edit(copy, lambda fields: fields["target"].update(triple=triple))
    fails(copy, f"the bundle is for {triple}, expected one for this", "--target", UserError)


@pytest.mark.parametrize(
    ("machine", "system", "triple"),
    [
        ("x86_64", "linux", "x86_64-unknown-linux-gnu"),
        ("AMD64", "win32", "x86_64-pc-windows-msvc"),
        ("aarch64", "linux", "aarch64-linux-gnu"),
        ("arm64", "darwin", "arm64-apple-darwin23.1.0"),
        ("arm64", "darwin", "aarch64-apple-macos"),
        ("armv7l", "linux", "armv7-linux-gnueabihf"),
        ("armv7l", "linux", "arm-linux-gnueabihf"),
        ("riscv64", "linux", "riscv64-linux-gnu"),
        ("ppc64le", "linux", "powerpc64le-linux-gnu"),
    ],
)
def test_names_of_this_machine(
    machine: str, system: str, triple: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(host, "_CPU_INFO", tmp_path / "nowhere")
    host.check_host(triple, "+avx512f")
    with pytest.raises(UserError, match="expected one for this machine"):
        host.check_host(triple.replace(triple.split("-")[0], "sparc"), "")


def test_a_library_that_lies_about_its_machine(copy: Path) -> None:
    library = copy / "libmlp.so"
    content = bytearray(library.read_bytes())
    content[18:20] = (0xF3).to_bytes(2, "little") if content[18] != 0xF3 else b"\x3e\0"
    library.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    edit(copy, lambda fields: fields["files"].update({"libmlp.so": digest}))
    fails(copy, r"the system cannot load libmlp\.so")


def test_an_older_processor(copy: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nflags\t\t: fpu sse4_2 avx\n", encoding="utf-8")
    monkeypatch.setattr(host, "_CPU_INFO", info)
    edit(
        copy,
        lambda fields: fields["target"].update(
            triple="x86_64-unknown-linux-gnu", features="+avx,+avx2,+sse4.2,+fma,+rdpid,-fma"
        ),
    )
    fails(copy, "needs a processor with avx2, which", "--cpu", UserError)


def test_a_newer_format(copy: Path) -> None:
    edit(copy, lambda fields: fields.update(format=FORMAT + 1))
    fails(copy, f"expected a bundle of form {FORMAT}, got {FORMAT + 1}", "glowpy that made it")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda fields: fields.pop("areas"), "not a bundle's manifest: no 'areas'"),
        (lambda fields: fields.pop("name"), "not a bundle's manifest: no 'name'"),
        (lambda fields: fields["options"].update(extra=1), "not a bundle's manifest"),
        (lambda fields: fields["options"].update(weights="cloud"), "expected one of file"),
        (lambda fields: fields.update(networks=[]), "at least one network"),
        (lambda fields: fields.update(networks=3), "not a bundle's manifest"),
        (lambda fields: fields.update(format="1"), "of form 1, got '1'"),
        (lambda fields: fields["networks"][0]["symbols"][0].update(type="f32[1x"), "manifest"),
        (lambda fields: fields["networks"][0]["symbols"][0].update(offset=1 << 20), "does not lie"),
        (lambda fields: fields["networks"][0]["symbols"][0].update(offset=-64), "does not lie"),
        (lambda fields: fields["networks"][0]["symbols"][0].update(role="out"), "got 'out'"),
        (lambda fields: fields["networks"][0].update(name="nothing"), "no function nothing"),
        (lambda fields: fields["areas"].update(constants=1), "expected 1 bytes"),
        (lambda fields: fields.update(alignment=4096), "alignment"),
    ],
)
def test_manifests_that_are_wrong(
    copy: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    edit(copy, change)
    fails(copy, message)


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"scripts": 1}', "\xff"])
def test_files_that_are_no_manifests(copy: Path, text: str) -> None:
    (copy / "mlp.json").write_bytes(text.encode("latin-1"))
    fails(copy, r"mlp\.json: not a bundle's manifest")
