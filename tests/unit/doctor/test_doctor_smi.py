"""nvidia-smi as a second source: a script in its place that prints recorded texts, hangs, or is not there."""

import os
from pathlib import Path

import pytest

from rtxscale.doctor import smi
from rtxscale.doctor.smi import ask_smi, bar1_sizes, licensed_product, smi_facts
from rtxscale.topology.details import parse_details
from rtxscale.topology.smi import Status

GOLDEN = Path(__file__).parents[2] / "golden" / "topology"
LONG = """
==============NVSMI LOG==============
Driver Version                            : 580.95.05
Attached GPUs                             : 2
GPU 00000000:01:00.0
    Serial Number                         : 1234567890123
    vGPU Software Licensed Product
        Product Name                      : NVIDIA AI Enterprise
    FB Memory Usage
        Total                             : 32607 MiB
    BAR1 Memory Usage
        Total                             : 32768 MiB
        Used                              : 1 MiB
GPU 00000000:C1:00.0
    BAR1 Memory Usage
        Total                             : 256 MiB
GPU 00000000:D1:00.0
    BAR1 Memory Usage
        Total                             : N/A
"""


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """Puts a script called nvidia-smi on the PATH."""

    def install(body):
        script = tmp_path / "nvidia-smi"
        script.write_text(f"#!/bin/sh\n{body}\n")
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    return install


def test_texts_are_read_and_kept(nvidia_smi, tmp_path):
    (tmp_path / "long.txt").write_text(LONG)
    nvidia_smi(
        f'case "$*" in\n"topo -m") cat {GOLDEN}/topo_5090x2_phb.txt;;\n"topo -p2p "*) cat {GOLDEN}/'
        f'topo_p2p_rw_5090x2_gns.txt;;\n"-q") cat {tmp_path}/long.txt;;\nesac'
    )
    found, bar1 = ask_smi(gpus=2, quick=False, cpu_count=32)
    assert found.topology.link("GPU0", "GPU1").label == "PHB"
    assert [(one.capability, one.claimed("GPU0", "GPU1")) for one in found.peer] == [("r", False), ("w", False)]
    assert found.licensed_product == "NVIDIA AI Enterprise"
    assert bar1 == {"00000000:01:00.0": 32768, "00000000:c1:00.0": 256}
    kept = dict(found.texts)
    assert set(kept) == {"nvidia-smi topo -m", "nvidia-smi topo -p2p r", "nvidia-smi topo -p2p w"}
    assert "1234567890123" not in "".join(kept.values())


def test_a_text_too_long_to_keep_loses_whole_lines(monkeypatch):
    monkeypatch.setattr(smi, "TEXT_LIMIT", 12)
    assert smi.kept_text("GPU0\tNV18\n") == "GPU0\tNV18\n"
    assert smi.kept_text("GPU0\tNV18\nGPU1\tNV18\n") == "GPU0\tNV18\n"
    assert smi.kept_text("a line without an end") == ""


def test_a_quick_look_leaves_the_long_form_out(nvidia_smi):
    nvidia_smi('if [ "$*" = "-q" ]; then exit 99; fi; echo "$*"')
    found, bar1 = ask_smi(gpus=2, quick=True, cpu_count=None)
    assert dict(found.texts)["nvidia-smi topo -m"] == "topo -m\n"
    assert bar1 == {}


@pytest.mark.parametrize("name", ["topo_m_with_i_error.txt", "topo_windows_591_error.txt"])
def test_a_refused_command_is_no_empty_topology(nvidia_smi, name):
    nvidia_smi(f"cat {GOLDEN / name} >&2; exit 255")
    found, _ = ask_smi(gpus=2, quick=True, cpu_count=None)
    assert found.topology.status is Status.UNAVAILABLE
    assert found.topology.said


def test_one_that_hangs_is_given_up(nvidia_smi, monkeypatch):
    nvidia_smi("exec sleep 60")
    monkeypatch.setattr(smi, "TIMEOUT_S", 0.2)
    found, _ = ask_smi(gpus=2, quick=True, cpu_count=None)
    assert found.topology is None
    assert found.texts == ()
    assert found.problem == "topo -m, topo -p2p r, topo -p2p w: no end after 0 s and given up"


def test_without_nvidia_smi(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    found, _ = ask_smi(gpus=2, quick=False, cpu_count=None)
    assert "not found" in found.problem
    assert ask_smi(gpus=0, quick=False, cpu_count=None) == (smi.SmiFacts(), {})


def test_bytes_that_are_no_text(nvidia_smi):
    nvidia_smi(r"printf '\377\376 \033[31m'")
    found, _ = ask_smi(gpus=2, quick=True, cpu_count=None)
    assert found.topology.status is Status.UNAVAILABLE


@pytest.mark.parametrize("word", ["N/A", "[N/A]", ""])
def test_no_licensed_product(word):
    details = parse_details(f"GPU 0\n    vGPU Software Licensed Product\n        Product Name : {word}\n")
    assert licensed_product(details) is None
    assert bar1_sizes(details) == {}


def test_glued_cells_are_cut_with_the_hosts_cpu_count():
    text = (GOLDEN / "topo_h100x8_cpu_numa_glued.txt").read_text()
    assert smi_facts({"topo -m": text}, 224).topology.repairs
    assert smi_facts({"topo -m": text}, None).topology.suspects
