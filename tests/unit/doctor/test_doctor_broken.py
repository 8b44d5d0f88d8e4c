"""A broken NVML library, none at all, a container: the doctor says so, without a traceback, by the right exit code."""

import ctypes
import json
import os
import shutil
import subprocess
import sys

import pynvml
import pytest

from rtxscale.doctor.examine import examine
from rtxscale.doctor.facts import DriverFacts, PciGpu
from rtxscale.doctor.gpus import look_at_gpus

from .made_facts import gpu, machine

NO_SYMBOLS = "int nothing;"
FAILING = "int nvmlInitWithFlags(unsigned flags) {{ return {code}; }}"
HALF = """
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) { *handle = (void *)1; return index ? 15 : 0; }
"""
UNCOUNTED = """
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { return 999; }
"""
LIBRARIES = {
    "no library": None,
    "an empty file": b"",
    "no library but text": b"version https://git-lfs.github.com/spec/v1\n",
    "without any function": NO_SYMBOLS,
    "module and library of different versions": FAILING.format(code=18),
    "an unknown error": FAILING.format(code=999),
    "an error that nobody has heard of": FAILING.format(code=12345),
    "one that does not count": UNCOUNTED,
    "half of the functions, one GPU lost": HALF,
}


def built(content, folder):
    """A folder with such a libnvidia-ml.so.1."""
    library = folder / "libnvidia-ml.so.1"
    if isinstance(content, bytes):
        library.write_bytes(content)
    elif content is not None:
        if shutil.which("cc") is None:
            pytest.skip("needs a C compiler, found none")
        command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
        subprocess.run(command, input=content, text=True, check=True)
    return folder


@pytest.mark.parametrize("kind", LIBRARIES)
def test_a_broken_library_is_a_problem_and_no_exception(kind, tmp_path, monkeypatch):
    library = built(LIBRARIES[kind], tmp_path) / "libnvidia-ml.so.1"
    monkeypatch.setattr(pynvml, "CDLL", lambda _: ctypes.CDLL(str(library)))
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    gpus, _, driver, _ = look_at_gpus({}, root=tmp_path)
    if "half" in kind:
        assert len(gpus) == 1
        assert driver.unreachable == ("GPU 1: the GPU is lost: it fell off the bus",)
    else:
        assert gpus == ()
        assert driver.nvml_problem
        assert driver.nvml_broken is (not isinstance(LIBRARIES[kind], bytes | None))


@pytest.mark.parametrize("kind", ["no library but text", "half of the functions, one GPU lost"])
def test_the_whole_command_survives_a_broken_library(kind, tmp_path):
    variables = {**os.environ, "LD_LIBRARY_PATH": str(built(LIBRARIES[kind], tmp_path))}
    command = [sys.executable, "-m", "rtxscale", "doctor", "--quick", "--json", "--results", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=variables, check=False)
    assert "Traceback" not in done.stderr
    found = json.loads(done.stdout)
    errors = [one for one in found["findings"] if one["severity"] == "error" and not one["ignored"]]
    assert done.returncode == found["exit_code"] == (1 if errors else 0)
    rules = {one["rule"] for one in found["findings"]}
    assert not [one for one in found["findings"] if one["found"].startswith("this rule failed")]
    if kind == "half of the functions, one GPU lost":
        assert {"lost_gpu"} <= rules
        assert done.returncode == 1
    elif shutil.which("nvidia-smi") is None:
        assert "driver_answers" in rules


def severities(facts):
    return {one.severity.value for one in examine(facts).findings if one.rule == "driver_answers"}


NVML_NOT_FOUND = "the NVML library libnvidia-ml.so.1 was not found"
CARDS = (PciGpu(bus_id="0000:01:00.0", device_id=0x2B85),)


@pytest.mark.parametrize(
    ("problem", "broken", "cards", "container", "severity", "code"),
    [
        (NVML_NOT_FOUND, False, (), "", "info", 0),
        (NVML_NOT_FOUND, False, (), "Docker", "info", 0),
        (NVML_NOT_FOUND, False, CARDS, "Docker", "warning", 0),
        ("module and library differ", True, CARDS, "", "error", 1),
        ("module and library differ", True, CARDS, "Kubernetes", "error", 1),
    ],
)
def test_the_exit_code_follows_the_severity(problem, broken, cards, container, severity, code):
    driver = DriverFacts(nvml_problem=problem, nvml_broken=broken)
    facts = machine([], driver=driver, host={"pci_gpus": cards, "container": container})
    assert severities(facts) == {severity}
    assert examine(facts).exit_code == code
    assert severities(machine([gpu(0)])) == set()
