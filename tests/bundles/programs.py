"""Programs that tests run in processes of their own."""

MODEL = '''
import numpy as np
from glowpy import BundleOptions, CompileOptions, CpuBackend, CpuOptions, Module, bundle, parse_type

def model(extra=1.0):
    """A convolution, its pool, and a product with two outputs."""
    module = Module()
    generator = np.random.default_rng(5)
    def constant(name, *shape):
        array = generator.standard_normal(shape, dtype=np.float32) * np.float32(extra)
        return module.create_constant(name, array)
    x = module.create_placeholder("x", parse_type("f32[1x8x8x5]"))
    f = module.create_function("main")
    conv = f.create_convolution("conv", x, constant("k", 9, 3, 3, 5), constant("b", 9),
                                (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1)
    pool = f.create_max_pool("pool", f.create_relu("relu", conv), (2, 2), (2, 2), (0, 0, 0, 0),
                             (1, 1), False)
    flat = f.create_reshape("flat", parse_type("f32[1x144]"), pool)
    dense = f.create_fully_connected("dense", flat, constant("w", 144, 10), constant("c", 10))
    probabilities = f.create_softmax("softmax", dense, 1)
    for name, node in (("logits", dense), ("probabilities", probabilities)):
        f.create_save(name, node, module.create_placeholder(name, node.result.type))
    return module
'''
"""A program that defines `model`."""

ALONE = (
    """
import importlib.abc, sys

class NoCompiler(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "ziglang":
            raise ImportError("there is no compiler here")
        return None

def audit(event, arguments):
    if event == "subprocess.Popen":
        program, command = arguments[0], list(arguments[1])
        own = command[1:3] == ["-S", "-I"] and command[3].endswith("glowpy/llvm/machine.py")
        if program != sys.executable or not own:
            raise RuntimeError(f"started {command}")

sys.meta_path.insert(0, NoCompiler())
sys.addaudithook(audit)
"""
    + MODEL
    + """
import glowpy, os
assert not os.environ["PATH"]
bundle(model(), "out/file", BundleOptions("net"))
bundle(model(), "out/embedded", BundleOptions("net", weights="embedded", selftest=1))
bundle(model(), "out/lib", BundleOptions("net", weights="embedded", emit="lib"))
inputs = {"x": np.ones((1, 8, 8, 5), np.float32)}
outputs = glowpy.compile(model(), "cpu", CompileOptions(cache=False))(inputs)
expected = glowpy.compile(model(), "interpreter")(inputs)
np.testing.assert_allclose(outputs["probabilities"], expected["probabilities"], rtol=1e-4)
assert "ziglang" not in sys.modules
try:
    bundle(model(), "out/shared", BundleOptions("net", emit="shared"))
except (glowpy.UserError, ImportError):
    print("no linker")
"""
)
"""Makes bundles and machine code where nothing but Python may be started; what it writes is in `out`."""
