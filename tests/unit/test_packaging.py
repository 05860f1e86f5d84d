"""The wheel and the source archive hold what they should, and an installed wheel works without anything else."""

import configparser
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from glowpy import CpuBackend
from glowpy.backends.builtin import PLACES
from glowpy.backends.cpu.options import CpuOptions
from glowpy.backends.cpu.target import portable_machine, resolve_target
from glowpy.backends.cpu.variant import VARIANTS, baseline_variant
from glowpy.llvm.stock import open_stock
from tests.bundles.programs import ALONE
from tests.unit.backends.test_common_functions import functions, network

ROOT = Path(__file__).resolve().parents[2]
BASELINE = baseline_variant(platform.machine())
KEPT = 1 + len(list((ROOT / "libjit" / "src").glob("*.c")))
"""How many files of bitcode the cache has after a compilation: each source file's, and all of them."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def build(project: Path, kind: str, folder: Path) -> Path:
    """Builds a project with the build requirements of the running environment; the one file it makes.

    A wheel has the stock of one variant: what takes long is left out.
    """
    environment = {**os.environ, "GLOWPY_STOCK": BASELINE.name}
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (archive,) = folder.iterdir()
    return archive


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))


def names_in_wheel(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_wheel_holds_bitcode_of_the_host_family(wheel: Path) -> None:
    bitcode = {
        Path(name).stem for name in names_in_wheel(wheel) if name.startswith("glowpy/llvm/bitcode/")
    }
    assert bitcode == {variant.name for variant in VARIANTS if variant.family == BASELINE.family}


def test_wheel_holds_a_stock_for_the_variants_that_are_asked_for(wheel: Path) -> None:
    places = [name for name in names_in_wheel(wheel) if name.startswith("glowpy/llvm/stock/")]
    assert [Path(name).name.partition("-")[0] for name in places] == [BASELINE.name]


def test_a_network_has_functions_in_the_stock_of_the_wheel(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    folder = tmp_path / "glowpy" / "llvm"
    kernels = (folder / "bitcode" / f"{BASELINE.name}.bc").read_bytes()
    machine = portable_machine(replace(resolve_target(CpuOptions()), variant=BASELINE))
    stock = open_stock(folder / "stock", BASELINE.name, machine, [kernels])
    options = CpuOptions(target=machine.triple, cpu=machine.cpu, features=machine.features)
    found = [stock.find(text) is not None for text in functions(network(), CpuBackend(options))]
    assert any(found)
    assert not all(found)


def test_wheel_holds_all_that_compiles_other_variants(wheel: Path) -> None:
    names = names_in_wheel(wheel)
    for part in ("src/*.c", "include/*.h", "compile.py", "variants.toml"):
        files = list((ROOT / "libjit").glob(part))
        assert files, part
        for file in files:
            assert f"glowpy/llvm/{file.relative_to(ROOT)}" in names


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = names_in_wheel(wheel)
    assert {"glowpy/__init__.py", "glowpy/py.typed"} <= names
    assert {name.split("/")[0] for name in names} == {"glowpy", "glowpy-0.1.0.dist-info"}
    assert not [name for name in names if "__pycache__" in name]


def test_wheel_says_where_the_backends_are(wheel: Path) -> None:
    """PyTorch's, and glowpy's own."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/entry_points.txt"))
        parser = configparser.ConfigParser()
        parser.read_string(archive.read(name).decode())
    assert dict(parser["torch_dynamo_backends"]) == {
        "glowpy": "glowpy.frontends.torch.compile:backend"
    }
    assert dict(parser["glowpy.backends"]) == dict(PLACES)


def test_wheel_is_for_a_platform_but_any_python(wheel: Path) -> None:
    _, _, python, abi, system = wheel.stem.split("-")
    assert (python, abi) == ("py3", "none")
    assert platform.machine().lower() in system


def test_wheel_names_no_folder_of_the_building_machine(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            content = archive.read(name)
            assert str(ROOT).encode() not in content, name
            assert sys.prefix.encode() not in content, name


def unpacked(sdist: Path, folder: Path) -> Path:
    """The project in a source archive, with one variant of the kernels: what takes long is left out."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (project,) = folder.iterdir()
    variants = project / "libjit" / "variants.toml"
    head, *entries = variants.read_text().split("[[variant]]\n")
    kept = [entry for entry in entries if f'name = "{BASELINE.name}"\n' in entry]
    variants.write_text("[[variant]]\n".join([head, *kept]))
    return project


def files_in_wheel(wheel: Path) -> dict[str, tuple[bytes, tuple[int, ...], int]]:
    """Content, time and mode of each file."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            info.filename: (archive.read(info), info.date_time, info.external_attr)
            for info in archive.infolist()
        }


def test_sdist_builds_the_same_wheel(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    """Byte for byte, in another folder, but for the variants that were left out, and where they are named."""
    other = build(unpacked(sdist, tmp_path / "project"), "wheel", tmp_path / "dist")
    assert other.name == wheel.name
    files, expected = files_in_wheel(other), files_in_wheel(wheel)
    left_out = {
        name
        for name in expected
        if Path(name).parent.name == "bitcode" and Path(name).stem != BASELINE.name
    }
    assert left_out
    assert list(files) == [name for name in expected if name not in left_out]
    named = {"glowpy/llvm/libjit/variants.toml", "glowpy-0.1.0.dist-info/RECORD"}
    assert {name for name in files if files[name] != expected[name]} == named


def test_sdist_holds_what_a_developer_needs(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = ["pyproject.toml", "LICENSE", "libjit/compile.py", "classgen/dsl.py", "tools/check.py"]
    assert set(needed) <= names
    assert any(name.startswith("tests/") for name in names)
    assert not [name for name in names if name.endswith(".bc") or "__pycache__" in name]


def install(folder: Path, *what: str) -> Path:
    """The Python of a fresh environment with glowpy; what glowpy depends on is lent by ours."""
    venv.create(folder, with_pip=True)
    (site,) = folder.glob("[Ll]ib/**/site-packages")
    lent = [path for path in sys.path if path.endswith("site-packages")]
    (site / "lent.pth").write_text("\n".join(lent) + "\n")
    python = folder / ("Scripts" if os.name == "nt" else "bin") / Path(sys.executable).name
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--ignore-installed"]
    command = [str(python), "-m", "pip", "install", *options, *what]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return python


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("environment"), str(wheel))


def run_installed(python: Path, code: str, folder: Path) -> str:
    """What a program prints that runs far from the checkout, with no PATH and an empty home."""
    home = folder / "home"
    home.mkdir()
    done = subprocess.run(
        [str(python), "-c", code],
        cwd=folder,
        env={"PATH": "", "HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_installed_glowpy_finds_its_bitcode(installed: Path, tmp_path: Path) -> None:
    code = (
        "from glowpy.backends.cpu.libjit import LIBJIT\n"
        "from glowpy.backends.cpu.variant import baseline_variant\n"
        f"print(LIBJIT.origin(baseline_variant({platform.machine()!r})))"
    )
    path = Path(run_installed(installed, code, tmp_path))
    assert path.is_relative_to(installed.parents[1])
    assert path.read_bytes().split(b"\n", 1)[1].startswith(b"BC")


def test_installed_glowpy_runs_its_demo(installed: Path, tmp_path: Path) -> None:
    """The first command of the README, with an empty home and no PATH."""
    command = [str(installed.parent / "glowpy"), "demo", "--output", str(tmp_path / "dumps")]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={"PATH": "", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("right: compared with") == 2
    assert (tmp_path / "dumps" / "memory.glow").is_file()


def test_installed_glowpy_needs_no_compiler(installed: Path, tmp_path: Path) -> None:
    """Machine code and bundles with no PATH, and nothing but Python started."""
    where = "import glowpy.llvm.library as b\nprint(b.__file__)"
    module_file, linker = run_installed(installed, f"{ALONE}\n{where}", tmp_path).splitlines()[::-1]
    assert linker == "no linker"
    assert Path(module_file).is_relative_to(installed.parents[1])
    names = {path.name for path in (tmp_path / "out" / "file").iterdir()}
    assert {"net.o", "net.h", "net.weights.bin", "net.json"} <= names
    assert not list((tmp_path / "home").rglob("bitcode-*"))


def test_installed_glowpy_compiles_another_variant(installed: Path, tmp_path: Path) -> None:
    code = (
        "from glowpy.backends.cpu.libjit import LIBJIT\n"
        "from glowpy.backends.cpu.variant import variant_named\n"
        "print(LIBJIT.bitcode(variant_named('riscv64')).split(b'\\n', 1)[1][:2])"
    )
    assert run_installed(installed, code, tmp_path) == "b'BC'"
    assert len(list((tmp_path / "home").rglob("bitcode-*"))) == KEPT


def test_editable_glowpy_compiles_its_bitcode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLOWPY_STOCK", "")
    python = install(tmp_path / "environment", "--editable", str(ROOT))
    code = (
        "import glowpy.backends.cpu.libjit as b\n"
        "from glowpy.backends.cpu.variant import baseline_variant\n"
        "print(b.__file__)\n"
        "from importlib.metadata import requires\n"
        "print(*[one for one in requires('glowpy') if 'ziglang' in one and 'extra' not in one])\n"
        f"print(b.LIBJIT.bitcode(baseline_variant({platform.machine()!r})).split(b'\\n', 1)[1][:2])"
    )
    module, compiler, magic = run_installed(python, code, tmp_path).splitlines()
    assert Path(module) == ROOT / "glowpy/backends/cpu/libjit.py"
    assert compiler == "ziglang<0.18,>=0.17"
    assert magic == "b'BC'"
    assert len(list((tmp_path / "home").rglob("bitcode-*"))) == KEPT


def test_plugin_is_installed_beside_an_installed_glowpy(installed: Path, tmp_path: Path) -> None:
    """Its wheel is built by that glowpy, and carries bitcode: nothing is compiled when it is used."""
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    source = shutil.copytree(ROOT / "tests" / "plugin_backend", tmp_path / "source")
    command = [str(installed), "-m", "pip", "install", *options, str(source)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    code = (
        "import numpy as np, glowpy\n"
        "module = glowpy.Module()\n"
        "x, y = (module.create_placeholder(n, glowpy.parse_type('f32[9]')) for n in 'xy')\n"
        "f = module.create_function('main')\n"
        "f.create_save('s', f.create_hard_swish('h', x), y)\n"
        "compiled = glowpy.compile(module, 'fused')\n"
        "assert compiled({'x': np.full(9, 4, np.float32)})['y'].tolist() == [4.0] * 9\n"
        "from glowpy.engine import compilation\n"
        "program = compilation(module, 'fused').program\n"
        "print([i.SCHEMA.mnemonic for i in program.ir.instructions])"
    )
    assert run_installed(installed, code, tmp_path) == "['hard_swish']"
    assert not list((tmp_path / "home").rglob("bitcode-*"))
