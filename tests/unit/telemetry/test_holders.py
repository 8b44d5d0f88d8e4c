"""Who holds a GPU, through an NVML module made of data."""

from types import SimpleNamespace

from rtxscale.telemetry.holders import GpuHolders, GpuUse

from .fake_nvml import DRIVER_NOT_LOADED, MIB, NOT_SUPPORTED, Failing, FakeGpu, FakeNvml


def process(pid, used_mib):
    return SimpleNamespace(pid=pid, usedGpuMemory=None if used_mib is None else used_mib * MIB)


def test_processes_and_used_memory_are_told_by_uuid():
    first = FakeGpu("GPU-a", nvmlDeviceGetComputeRunningProcesses=[process(4242, 300), process(7, None)])
    holders = GpuHolders(FakeNvml([first, FakeGpu("GPU-b", bus="00000000:02:00.0")]))
    use = holders.look()
    assert [(one.uuid, one.pid, one.used_mib) for one in use.processes] == [("GPU-a", 4242, 300.0), ("GPU-a", 7, None)]
    assert use.processes == holders.processes()
    assert use.used_mib == {"GPU-a": 1000.0, "GPU-b": 1000.0}  # without the 500 MiB that the driver reserves


def test_each_look_is_a_new_one():
    gpu = FakeGpu("GPU-a")
    holders = GpuHolders(FakeNvml([gpu]))
    assert holders.look().processes == ()
    gpu.calls["nvmlDeviceGetComputeRunningProcesses"] = [process(4242, 300)]
    assert [one.pid for one in holders.look().processes] == [4242]


def test_a_gpu_that_does_not_tell_hides_nobody_on_the_others():
    silent = FakeGpu("GPU-a", memory_mib=None, nvmlDeviceGetComputeRunningProcesses=Failing(NOT_SUPPORTED))
    other = FakeGpu("GPU-b", bus="00000000:02:00.0", nvmlDeviceGetComputeRunningProcesses=[process(4242, 300)])
    use = GpuHolders(FakeNvml([silent, other])).look()
    assert [one.uuid for one in use.processes] == ["GPU-b"]
    assert use.used_mib == {"GPU-b": 1000.0}


def test_without_nvml_nobody_is_seen():
    holders = GpuHolders(FakeNvml(init_error=DRIVER_NOT_LOADED))
    assert holders.look() == GpuUse()
    assert holders.processes() == ()
    holders.close()


def test_closing_gives_nvml_back():
    nvml = FakeNvml([FakeGpu("GPU-a", nvmlDeviceGetComputeRunningProcesses=[process(4242, 300)])])
    holders = GpuHolders(nvml)
    holders.close()
    assert nvml.open == 0
    assert holders.look() == GpuUse()
