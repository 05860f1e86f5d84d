"""Devices, memory and providers as onnxruntime describes them. There is one of each: the CPU."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, final

from glowpy.onnxruntime.errors import Fail, InvalidArgument
from glowpy.onnxruntime.logs import say_once
from glowpy.onnxruntime.providers import CPU

__all__ = [
    "ArenaExtendStrategy",
    "OrtAllocatorType",
    "OrtArenaCfg",
    "OrtCompiledModelCompatibility",
    "OrtDevice",
    "OrtDeviceEpIncompatibilityReason",
    "OrtDeviceMemoryType",
    "OrtDeviceVendorId",
    "OrtEpAssignedNode",
    "OrtEpAssignedSubgraph",
    "OrtEpDevice",
    "OrtExecutionProviderDevicePolicy",
    "OrtHardwareDevice",
    "OrtHardwareDeviceType",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtMemoryInfoDeviceType",
    "OrtSyncStream",
    "check_device",
    "create_and_register_allocator",
    "create_and_register_allocator_v2",
    "get_ep_devices",
    "get_hardware_device_ep_incompatibility_details",
    "get_hardware_devices",
    "get_model_compatibility_for_ep_devices",
    "register_execution_provider_library",
    "unregister_execution_provider_library",
]


class _Choice(IntEnum):
    """A number with a name, which prints as its name."""

    __str__ = Enum.__str__


class OrtAllocatorType(_Choice):
    """How memory is given out. glowpy plans it when it compiles."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class ArenaExtendStrategy(_Choice):
    """How an arena grows. glowpy has none."""

    kNextPowerOfTwo = 0  # noqa: N815 -- the names are onnxruntime's
    kSameAsRequested = 1  # noqa: N815


class OrtMemType(_Choice):
    """The purpose of memory."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class OrtDeviceMemoryType(_Choice):
    """Who can reach a device's memory."""

    DEFAULT = 0
    HOST_ACCESSIBLE = 5


class OrtMemoryInfoDeviceType(_Choice):
    """The kind of device that memory belongs to."""

    CPU = 0
    GPU = 1
    FPGA = 2
    NPU = 3


class OrtHardwareDeviceType(_Choice):
    """The kind of a device."""

    CPU = 0
    GPU = 1
    NPU = 2


class OrtExecutionProviderDevicePolicy(_Choice):
    """The policy by which a provider is selected; glowpy has one provider."""

    DEFAULT = 0
    PREFER_CPU = 1
    PREFER_NPU = 2
    PREFER_GPU = 3
    MAX_PERFORMANCE = 4
    MAX_EFFICIENCY = 5
    MIN_OVERALL_POWER = 6


class OrtCompiledModelCompatibility(_Choice):
    """Whether a provider can run what it has compiled before."""

    EP_NOT_APPLICABLE = 0
    EP_SUPPORTED_OPTIMAL = 1
    EP_SUPPORTED_PREFER_RECOMPILATION = 2
    EP_UNSUPPORTED = 3


class OrtDeviceEpIncompatibilityReason(_Choice):
    """Why a provider cannot use a device."""

    NONE = 0
    DRIVER_INCOMPATIBLE = 1
    DEVICE_INCOMPATIBLE = 2
    MISSING_DEPENDENCY = 4
    UNKNOWN = -(1 << 31)


class OrtDeviceVendorId(IntEnum):
    """The maker of a device."""

    NONE = 0x0000
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086


_DEVICES = {
    "cpu": (0, OrtDeviceVendorId.NONE),
    "cuda": (1, OrtDeviceVendorId.NVIDIA),
    "cann": (3, OrtDeviceVendorId.HUAWEI),
    "dml": (4, OrtDeviceVendorId.MICROSOFT),
    "webgpu": (1, OrtDeviceVendorId.NONE),
    "gpu": (1, OrtDeviceVendorId.NONE),
    "npu": (3, OrtDeviceVendorId.NONE),
}
"""The number of a type of devices, and who makes them, by the name that onnxruntime has for the type."""


def check_device(device_type: str | OrtDevice) -> None:
    """Raises RuntimeError for a device that glowpy does not compute on, ValueError for one nobody knows."""
    if isinstance(device_type, OrtDevice):
        device_type = "cpu" if device_type.device_type() == OrtDevice.cpu() else "gpu"
    if device_type.lower() not in _DEVICES:
        raise ValueError(f"expected one of the devices {', '.join(_DEVICES)}, got '{device_type}'")
    if device_type.lower() != "cpu":
        raise RuntimeError(f"expected memory of the device 'cpu', got '{device_type}'")


@final
class OrtDevice:
    """A place of values: the type of a device, its number among those, and its maker. glowpy's are on the CPU."""

    def __init__(self, device_type: int | str = 0, *numbers: int) -> None:
        """Makes one of a type; with the kind of its memory, its maker if three numbers follow, and its number."""
        kind, vendor = (
            _DEVICES[device_type] if isinstance(device_type, str) else (int(device_type), 0)
        )
        *rest, self._id = numbers or (0,)
        self._type, self._memory = kind, rest[0] if rest else 0
        self._vendor = int(rest[1]) if len(rest) > 1 else int(vendor)
        if kind == OrtDevice.dml():  # a GPU that is reached in a way of its own
            self._type, self._vendor = OrtDevice.gpu(), int(OrtDeviceVendorId.MICROSOFT)

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """The device called so. Raises ValueError for a name nobody knows."""
        if ort_device_name.lower() not in _DEVICES:
            raise ValueError(
                f"expected one of the devices {', '.join(_DEVICES)}, got '{ort_device_name}'"
            )
        kind, vendor = _DEVICES[ort_device_name.lower()]
        return OrtDevice(kind, 0, int(vendor) if vendor_id < 0 else int(vendor_id), device_id)

    @staticmethod
    def cpu() -> int:
        """The number of the CPU among the types of devices."""
        return 0

    @staticmethod
    def gpu() -> int:
        """The number of GPUs among the types of devices."""
        return 1

    cuda = webgpu = gpu

    @staticmethod
    def fpga() -> int:
        """The number of FPGAs among the types of devices."""
        return 2

    @staticmethod
    def npu() -> int:
        """The number of NPUs among the types of devices."""
        return 3

    cann = npu

    @staticmethod
    def dml() -> int:
        """The number of DirectML among the types of devices."""
        return 4

    @staticmethod
    def default_memory() -> int:
        """The number of ordinary memory."""
        return 0

    def device_id(self) -> int:
        """Which of the devices of this type."""
        return self._id

    def device_type(self) -> int:
        """The type, as a number: that of the CPU is 0."""
        return self._type

    def device_vendor_id(self) -> int:
        """The number of its maker; 0 for nobody in particular."""
        return self._vendor

    vendor_id = device_vendor_id

    def device_mem_type(self) -> int:
        """The kind of its memory: 0."""
        return self._memory

    mem_type = device_mem_type

    def _get_c_device(self) -> OrtDevice:
        return self


@final
@dataclass(frozen=True)
class OrtMemoryInfo:
    """A kind of memory."""

    name: str
    allocator_type: OrtAllocatorType = OrtAllocatorType.ORT_DEVICE_ALLOCATOR
    device_id: int = 0
    mem_type: OrtMemType = OrtMemType.DEFAULT
    device_mem_type: OrtDeviceMemoryType = OrtDeviceMemoryType.DEFAULT
    device_vendor_id: int = 0

    @staticmethod
    def create_v2(
        name: str,
        device_type: OrtMemoryInfoDeviceType,
        vendor_id: int,
        device_id: int,
        device_mem_type: OrtDeviceMemoryType,
        alignment: int,
        allocator_type: OrtAllocatorType,
    ) -> OrtMemoryInfo:
        """The same with who makes the device."""
        del device_type, alignment
        return OrtMemoryInfo(
            name, allocator_type, device_id, OrtMemType.DEFAULT, device_mem_type, vendor_id
        )


_ARENA = (
    "max_mem",
    "arena_extend_strategy",
    "initial_chunk_size_bytes",
    "max_dead_bytes_per_chunk",
    "initial_growth_chunk_size_bytes",
    "max_power_of_two_extend_bytes",
)


@final
class OrtArenaCfg:
    """How an arena is to be: the first four numbers, or a mapping of those that are not as usual."""

    max_mem: int
    arena_extend_strategy: int
    initial_chunk_size_bytes: int
    max_dead_bytes_per_chunk: int
    initial_growth_chunk_size_bytes: int
    max_power_of_two_extend_bytes: int

    def __init__(self, first: int | Mapping[str, int], *rest: int) -> None:
        values = (
            dict(first)
            if isinstance(first, Mapping)
            else dict(zip(_ARENA, (first, *rest), strict=False))
        )
        if unknown := set(values) - set(_ARENA):
            raise RuntimeError(f"Invalid OrtArenaCfg option: {min(unknown)}")
        for name in _ARENA:
            setattr(self, name, int(values.get(name, 0 if name == "max_mem" else -1)))


def create_and_register_allocator(mem_info: OrtMemoryInfo, arena_cfg: OrtArenaCfg | None) -> None:
    """Has no effect: memory is planned when a network is compiled."""
    del mem_info, arena_cfg
    say_once("a registered allocator has no effect: memory is planned when a network is compiled")


def create_and_register_allocator_v2(
    provider_type: str,
    mem_info: OrtMemoryInfo,
    provider_options: Mapping[str, str],
    arena_cfg: OrtArenaCfg | None,
) -> None:
    """Has no effect. Raises RuntimeError for another provider than the CPU's."""
    del provider_options
    if provider_type != CPU:
        raise RuntimeError(f"expected {CPU}, got '{provider_type}'")
    create_and_register_allocator(mem_info, arena_cfg)


# Devices and providers.


@final
@dataclass(frozen=True)
class OrtHardwareDevice:
    """A device of the machine."""

    type: OrtHardwareDeviceType = OrtHardwareDeviceType.CPU
    vendor: str = field(default_factory=platform.machine)
    vendor_id: int = 0
    device_id: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)


@final
class OrtSyncStream:
    """For annotations: there is nothing to wait for on the CPU."""

    def get_handle(self) -> int:
        """0."""
        return 0


@final
@dataclass(frozen=True)
class OrtEpDevice:
    """A provider and the device that it computes on."""

    ep_name: str = CPU
    ep_vendor: str = "glowpy"
    ep_metadata: Mapping[str, str] = field(default_factory=dict)
    ep_options: Mapping[str, str] = field(default_factory=dict)
    device: OrtHardwareDevice = field(default_factory=OrtHardwareDevice)

    def memory_info(self, memory_type: OrtDeviceMemoryType) -> OrtMemoryInfo | None:
        """Describes its memory; None for memory that only other devices have."""
        return OrtMemoryInfo("Cpu") if memory_type == OrtDeviceMemoryType.DEFAULT else None

    def create_sync_stream(self) -> OrtSyncStream:
        """Raises InvalidArgument: a CPU has no streams."""
        raise InvalidArgument("the CPU has no streams")


@final
@dataclass(frozen=True)
class OrtEpAssignedNode:
    """A node of the model that a provider computes."""

    name: str
    domain: str
    op_type: str


@final
@dataclass(frozen=True)
class OrtEpAssignedSubgraph:
    """Nodes that a provider computes together."""

    ep_name: str
    nodes: tuple[OrtEpAssignedNode, ...]

    def get_nodes(self) -> list[OrtEpAssignedNode]:
        """The nodes."""
        return list(self.nodes)


def get_ep_devices() -> list[OrtEpDevice]:
    """The provider of the CPU, on the CPU."""
    return [OrtEpDevice()]


def get_hardware_devices() -> list[OrtHardwareDevice]:
    """The CPU."""
    return [OrtHardwareDevice()]


def get_hardware_device_ep_incompatibility_details(
    ep_name: str, hardware_device: OrtHardwareDevice
) -> dict[str, Any]:
    """Nothing for the CPU. Raises InvalidArgument for another provider than the CPU's."""
    del hardware_device
    if not ep_name:
        raise RuntimeError("expected the name of a provider, got ''")
    if ep_name != CPU:
        raise InvalidArgument(f"No valid factory found for execution provider '{ep_name}'.")
    return {"reasons_bitmask": 0, "notes": None, "error_code": 0}


def get_model_compatibility_for_ep_devices(
    ep_devices: Sequence[OrtEpDevice], compatibility_info: str
) -> OrtCompiledModelCompatibility:
    """EP_NOT_APPLICABLE: the CPU's provider reads every model. Raises RuntimeError without devices."""
    if not isinstance(compatibility_info, str):
        raise TypeError(f"expected a str, got {compatibility_info!r}")
    if not ep_devices:
        raise RuntimeError("Invalid argument provided to GetModelCompatibilityForEpDevices.")
    return OrtCompiledModelCompatibility.EP_NOT_APPLICABLE


def register_execution_provider_library(registration_name: str, library_path: str) -> None:
    """Raises Fail: providers are machine code for onnxruntime."""
    reason = "" if Path(library_path).exists() else ": there is no such file"
    raise Fail(
        f"Failed to load library {library_path} for '{registration_name}'{reason}; "
        "providers are machine code for onnxruntime, and glowpy runs on the CPU"
    )


def unregister_execution_provider_library(registration_name: str) -> None:
    """Raises Fail: none was registered."""
    raise Fail(f"Execution provider library: {registration_name} was not registered.")
