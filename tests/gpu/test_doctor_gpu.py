"""The doctor on a machine with two GPUs: NVML and nvidia-smi for real, and copies that arrive right."""

import json
import os
import subprocess
import sys

import pytest

WORLD = 2

pytestmark = pytest.mark.gpu


def missing():
    import torch

    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return "" if found >= WORLD else f"needs {WORLD} NVIDIA GPUs, found {found}"


@pytest.fixture(scope="module")
def examined(tmp_path_factory):
    if reason := missing():
        pytest.skip(reason)
    words = ["doctor", "--json", "--results", str(tmp_path_factory.mktemp("results"))]
    done = subprocess.run([sys.executable, "-m", "rtxscale", *words], capture_output=True, text=True, env=os.environ)
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout)


def test_no_rule_failed_and_every_gpu_is_known(examined):
    assert not [one for one in examined["findings"] if one["found"].startswith("this rule failed")]
    assert len(examined["machine"]["gpus"]) >= WORLD
    assert examined["machine"]["driver"]
    assert examined["machine"]["software"]["torch_architectures"]


def test_links_are_said(examined):
    found = {one["rule"]: one["found"] for one in examined["findings"]}
    assert f"links between {len([gpu for gpu in examined['machine']['gpus'] if gpu['used']])} GPUs" in found["topology"]
    assert "all_reduce" in found


def test_copies_arrive_right_at_a_believable_rate(examined):
    transfers = examined["transfers"]
    assert transfers["not_run"] is None
    assert transfers["pairs"]
    for pair in transfers["pairs"]:
        assert pair["data_right"] is True, pair
        assert pair["there_gb_s"] > 1
        assert 1 < pair["small_copy_us"] < 5000
    for host in transfers["hosts"]:
        assert 1 < host["to_device_gb_s"] < 200, host
        assert host["to_device_together_gb_s"] <= 1.2 * host["to_device_gb_s"]
