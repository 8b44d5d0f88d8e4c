"""A real sweep whose storage goes away under it and comes back: an S3 server that stops, a full disk. Opt-in."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import wait_for
from test_command_line import Command
from tiny import sweep_file, trials_of

from rtxscale.results.live import read_live

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "results"))
VARIABLE = "RTXSCALE_FAULTS"
pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(600),
    pytest.mark.skipif(VARIABLE not in os.environ, reason=f"each takes a minute: set {VARIABLE}=1"),
]


def paused_and_resumed(command, run_dir, mend):
    """Wait for the pause that everybody can see, mend what is broken, and let the sweep end."""
    command.until("paused: ")
    wait_for(lambda: "paused since" in getattr(read_live(run_dir), "current", ""), 30, "the reason in the state")
    mend()
    code, output = command.end()
    assert code == 0, output
    assert "the storage is back after" in output
    assert {row["outcome"] for row in trials_of(run_dir)} == {"ok"}
    assert len({row["trial_id"] for row in trials_of(run_dir)}) == len(trials_of(run_dir)) == 4
    return output


def test_an_object_store_that_is_away_pauses_the_sweep(head, tmp_path):
    pytest.importorskip("moto.server", reason="needs moto's S3 server")
    import boto3
    from test_object_store import SECRET, Server

    server = Server()
    aws = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}",
        "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    client = boto3.client(
        "s3",
        endpoint_url=aws["AWS_ENDPOINT_URL"],
        region_name="us-east-1",
        aws_access_key_id="AKIAEXAMPLE",
        aws_secret_access_key=SECRET,
    )
    client.create_bucket(Bucket="bucket")
    head.environment.update(aws)
    try:
        sweep = sweep_file(tmp_path, "stored", gpus="[2]", buckets="[1, 25, 50]", window_s=2)
        command = Command(head, sweep, "s3://bucket/runs", "--no-report")
        command.until("[1/")
        server.go()
        (run_dir,) = (head.home / ".cache" / "rtxscale").glob("s3-*/bucket/runs/stored-*")
        output = paused_and_resumed(command, run_dir, server.come)
        names = [one["Key"] for one in client.list_objects_v2(Bucket="bucket")["Contents"]]
        assert sorted(name.rpartition("/")[2] for name in names if name.endswith(".json") and "/commits/" in name) == [
            path.name for path in sorted((run_dir / "commits").iterdir())
        ]
        shutil.rmtree(head.home / ".cache" / "rtxscale")  # another machine
        code, resumed = Command(head, sweep, "s3://bucket/runs", "--no-report").end()
        assert code == 0, resumed
        assert "4 already finished" in resumed
        kept = [path for path in [*head.home.glob("ray/session_*/logs/*"), *run_dir.rglob("*")] if path.is_file()]
        assert SECRET not in output + resumed + "".join(path.read_text(errors="replace") for path in kept)
    finally:
        for name in aws:
            del head.environment[name]
        server.go()


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own with 100 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "rtxscale", str(place)]).returncode:
        pytest.skip("only root can mount a small disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_is_full_pauses_the_sweep(head, tmp_path, small_disk):
    sweep = sweep_file(tmp_path, "filled", gpus="[2]", buckets="[1, 25, 50]", window_s=2)
    command = Command(head, sweep, small_disk / "runs", "--no-report")
    command.until("[1/")
    (small_disk / "thesis").write_bytes(bytes(60 * 2**20))
    (run_dir,) = (small_disk / "runs").iterdir()
    output = paused_and_resumed(command, run_dir, (small_disk / "thesis").unlink)
    assert "MiB free on its disk" in output
