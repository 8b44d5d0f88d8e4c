# ruff: noqa: N802 - the functions have NVML's own names
"""An NVML module made of data: the parts of nvidia-ml-py that probes use, with the faults that real ones show."""

from __future__ import annotations

from types import SimpleNamespace

MIB = 1024 * 1024
NOT_SUPPORTED = 3
NOT_FOUND = 6
TIMEOUT = 10
DRIVER_NOT_LOADED = 9
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
XID_EVENT = 0x8

DEFAULTS = {
    "nvmlDeviceGetPowerUsage": 300_000,
    "nvmlDeviceGetTotalEnergyConsumption": 5_000_000,
    "nvmlDeviceGetTemperature": 61,
    "nvmlDeviceGetCurrentClocksEventReasons": 0x4,
    "nvmlDeviceGetCurrentClocksThrottleReasons": 0x4,
    "nvmlDeviceGetPerformanceState": 0,
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=97, memory=40),
    "nvmlDeviceGetFanSpeed": 55,
    "nvmlDeviceGetCurrPcieLinkGeneration": 5,
    "nvmlDeviceGetCurrPcieLinkWidth": 16,
    "nvmlDeviceGetPcieThroughput": 12_000_000,
    "nvmlDeviceGetPowerManagementLimit": 575_000,
    "nvmlDeviceGetPowerManagementDefaultLimit": 575_000,
    "nvmlDeviceGetPowerManagementLimitConstraints": [400_000, 600_000],
    "nvmlDeviceGetCudaComputeCapability": (12, 0),
    "nvmlDeviceGetMaxPcieLinkGeneration": 5,
    "nvmlDeviceGetMaxPcieLinkWidth": 16,
    "nvmlDeviceGetPersistenceMode": 1,
    "nvmlDeviceGetMigMode": NOT_SUPPORTED,
    "nvmlDeviceGetComputeRunningProcesses": [],
    "nvmlDeviceGetPcieReplayCounter": 2,
    "nvmlDeviceGetTotalEccErrors": 0,
    "nvmlDeviceGetRemappedRows": (1, 2, 0, 0),
}


class NVMLError(Exception):
    def __init__(self, value):
        super().__init__(f"NVML error {value}")
        self.value = value


class Failing:
    """A planned failure with this NVML code."""

    def __init__(self, code):
        self.code = code


class FakeGpu:
    """One GPU. `calls` overrides what a call gives: a value, a function without arguments, an error or `Failing`."""

    def __init__(self, uuid, *, name="NVIDIA GeForce RTX 5090", bus="00000000:01:00.0", memory_mib=32607, **calls):
        self.uuid = uuid
        self.name = name
        self.bus = bus
        self.memory_mib = memory_mib
        self.fields = {82: (1, 70), 185: (1, 299_000), 186: (1, 301_000)}
        self.mig_instances = []
        self.xids = []
        """Numbers of Xid errors that nobody has waited for yet."""
        self.calls = {**DEFAULTS, "nvmlDeviceGetMigMode": Failing(NOT_SUPPORTED), **calls}
        self.lost = False


class FakeNvml:
    """The module. `missing` names functions that this version does not have."""

    NVMLError = NVMLError

    def __init__(self, gpus=(), *, missing=(), init_error=None, driver="580.95.05", cuda=13000):
        self.gpus = list(gpus)
        self.missing = set(missing)
        self.init_error = init_error
        self.driver = driver
        self.cuda = cuda
        self.open = 0

    def __getattribute__(self, name):
        if name.startswith("nvml") and name in object.__getattribute__(self, "missing"):
            raise AttributeError(name)
        return object.__getattribute__(self, name)

    def __getattr__(self, name):
        if name in DEFAULTS and name not in self.missing:
            return lambda gpu, *_: answer(gpu, gpu.calls[name])
        raise AttributeError(name)

    def nvmlInit(self):
        if self.init_error is not None:
            raise NVMLError(self.init_error)
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlSystemGetDriverVersion(self):
        return self.driver

    def nvmlSystemGetCudaDriverVersion_v2(self):
        return self.cuda

    def nvmlDeviceGetCount(self):
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):
        return answer(self.gpus[index], self.gpus[index])

    def nvmlDeviceGetUUID(self, gpu):
        return answer(gpu, gpu.uuid)

    def nvmlDeviceGetName(self, gpu):
        return answer(gpu, gpu.name)

    def nvmlDeviceGetPciInfo(self, gpu):
        return answer(gpu, SimpleNamespace(busId=gpu.bus))

    def nvmlDeviceGetMemoryInfo(self, gpu, version=None):
        if gpu.memory_mib is None:
            raise NVMLError(NOT_SUPPORTED)
        reserved = 0 if version else 500 * MIB
        return answer(gpu, SimpleNamespace(total=gpu.memory_mib * MIB, used=1000 * MIB + reserved))

    def nvmlDeviceGetClockInfo(self, gpu, kind):
        return answer(gpu, {1: 2400, 2: 14001}[kind])

    def nvmlDeviceGetFieldValues(self, gpu, fields):
        answer(gpu, None)
        return [field_value(gpu.fields.get(number)) for number in fields]

    def nvmlEventSetCreate(self):
        return SimpleNamespace(gpu=None)

    def nvmlDeviceRegisterEvents(self, gpu, kinds, events):
        answer(gpu, None)
        assert kinds == XID_EVENT
        events.gpu = gpu

    def nvmlEventSetFree(self, events):
        events.gpu = None

    def nvmlEventSetWait_v2(self, events, milliseconds):
        assert milliseconds == 0, "sampling must not wait"
        if events.gpu.xids:  # what happened before a GPU was lost is still told
            return SimpleNamespace(eventType=XID_EVENT, eventData=events.gpu.xids.pop(0))
        answer(events.gpu, None)
        raise NVMLError(TIMEOUT)

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu):
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu, index):
        if index >= len(gpu.mig_instances):
            raise NVMLError(NOT_FOUND)
        return gpu.mig_instances[index]


def answer(gpu, value):
    """What a call gives: everything fails on a lost GPU."""
    if gpu.lost:
        raise NVMLError(GPU_IS_LOST)
    if isinstance(value, Failing):
        raise NVMLError(value.code)
    if isinstance(value, Exception):
        raise value
    return value() if callable(value) else value


def field_value(typed):
    """A field value as NVML gives it: the call succeeds though the field may not."""
    if typed is None:
        return SimpleNamespace(nvmlReturn=NOT_SUPPORTED, valueType=0, value=None)
    kind, value = typed
    member = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")[kind]
    return SimpleNamespace(nvmlReturn=0, valueType=kind, value=SimpleNamespace(**{member: value}))
