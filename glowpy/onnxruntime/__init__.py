"""`import glowpy.onnxruntime as ort`: onnxruntime's session API, for code that was written for it.

Names, signatures, results and exceptions are onnxruntime's; docs/onnxruntime.md lists what has an effect and what
differs. Importing a name that is not here raises ImportError.
"""

from types import ModuleType as _ModuleType

from glowpy.onnxruntime import capi
from glowpy.onnxruntime.adapters import AdapterFormat, LoraAdapter
from glowpy.onnxruntime.binding import IOBinding
from glowpy.onnxruntime.compiler import (
    ModelCompiler,
    OrtCompileApiFlags,
    OrtExternalInitializerInfo,
)
from glowpy.onnxruntime.devices import (
    OrtAllocatorType,
    OrtArenaCfg,
    OrtDevice,
    OrtDeviceMemoryType,
    OrtDeviceVendorId,
    OrtEpAssignedNode,
    OrtEpAssignedSubgraph,
    OrtEpDevice,
    OrtExecutionProviderDevicePolicy,
    OrtHardwareDevice,
    OrtHardwareDeviceType,
    OrtMemoryInfo,
    OrtMemoryInfoDeviceType,
    OrtMemType,
    OrtSyncStream,
    create_and_register_allocator,
    create_and_register_allocator_v2,
    get_ep_devices,
    register_execution_provider_library,
    unregister_execution_provider_library,
)
from glowpy.onnxruntime.global_threads import set_global_thread_pool_sizes
from glowpy.onnxruntime.logs import (
    set_default_logger_callback,
    set_default_logger_severity,
    set_default_logger_verbosity,
)
from glowpy.onnxruntime.model import ModelMetadata, NodeArg
from glowpy.onnxruntime.options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)
from glowpy.onnxruntime.parts import find_parts as _find_parts
from glowpy.onnxruntime.parts import part as _part
from glowpy.onnxruntime.providers import get_all_providers, get_available_providers, get_device
from glowpy.onnxruntime.session import InferenceSession
from glowpy.onnxruntime.session_internals import SessionIOBinding
from glowpy.onnxruntime.sparse import OrtSparseFormat, SparseTensor
from glowpy.onnxruntime.stubs import (
    ModelPackage,
    ModelPackageComponentContext,
    ModelPackageContext,
    ModelPackageOptions,
    ModelPackageWriteMode,
    OrtEpContextData,
    OrtEpContextDataBuffer,
)
from glowpy.onnxruntime.values import OrtValue, copy_tensors
from glowpy.onnxruntime.versions import VERSION as _VERSION
from glowpy.onnxruntime.versions import (
    disable_telemetry_events,
    enable_telemetry_events,
    get_build_info,
    get_version_string,
    has_collective_ops,
    preload_dlls,
    print_debug_info,
    set_seed,
)

__all__ = [
    "AdapterFormat",
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "LoraAdapter",
    "ModelCompiler",
    "ModelMetadata",
    "ModelPackage",
    "ModelPackageComponentContext",
    "ModelPackageContext",
    "ModelPackageOptions",
    "ModelPackageWriteMode",
    "NodeArg",
    "OrtAllocatorType",
    "OrtArenaCfg",
    "OrtCompileApiFlags",
    "OrtDevice",
    "OrtDeviceMemoryType",
    "OrtDeviceVendorId",
    "OrtEpAssignedNode",
    "OrtEpAssignedSubgraph",
    "OrtEpContextData",
    "OrtEpContextDataBuffer",
    "OrtEpDevice",
    "OrtExecutionProviderDevicePolicy",
    "OrtExternalInitializerInfo",
    "OrtHardwareDevice",
    "OrtHardwareDeviceType",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtMemoryInfoDeviceType",
    "OrtSparseFormat",
    "OrtSyncStream",
    "OrtValue",
    "RunOptions",
    "SessionIOBinding",
    "SessionOptions",
    "SparseTensor",
    "capi",
    "copy_tensors",
    "create_and_register_allocator",
    "create_and_register_allocator_v2",
    "cuda_version",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_ep_devices",
    "get_version_string",
    "has_collective_ops",
    "package_name",
    "preload_dlls",
    "print_debug_info",
    "register_execution_provider_library",
    "set_default_logger_callback",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
    "unregister_execution_provider_library",
    "version",
]

__version__ = _VERSION
package_name = "glowpy"
version = _VERSION
cuda_version = ""
"""Empty: glowpy computes on the CPU."""


def __getattr__(name: str) -> _ModuleType:
    return _part(name)


_find_parts()
