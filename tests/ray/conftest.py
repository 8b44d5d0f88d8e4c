"""A head node with token authentication on ports of its own, shared by all tests here, and what they start on it.

Nothing of the user's is touched: HOME, the token and Ray's temporary files are in a directory of the test's own, and
processes are ended by their id, never with `ray stop`.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rtxscale.run.processes import descendants

REPOSITORY = Path(__file__).parents[2]
START_S = 300
"""For Ray to start or to notice an end, on however busy a machine."""


@dataclass
class Head:
    """A running head node: where it listens, and the environment of those who use it."""

    address: str
    dashboard: str
    home: Path
    environment: dict[str, str] = field(repr=False)


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def clean_environment(home):
    """The environment without anything that points at another cluster, with a home of its own."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "RTXSCALE_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{variables['PATH']}"
    return variables | {"HOME": str(home), "PATH": path, "TMPDIR": str(home / "t"), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="session")
def home() -> Iterator[Path]:
    """A short home directory: Ray puts sockets below it, whose paths are limited to 107 characters."""
    directory = Path(tempfile.mkdtemp(prefix="rx-", dir="/tmp"))
    (directory / "t").mkdir()
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def head(home) -> Iterator[Head]:
    """The head node, up until the last test has run."""
    with running_head(home) as head:
        yield head


@contextmanager
def running_head(home, ports=None):
    """A head node; with the ports of one that has ended, it is the same one started anew."""
    variables = clean_environment(home) | {"RAY_TMPDIR": str(home), "RAY_metrics_report_interval_ms": "1000"}
    variables["RAY_agent_register_timeout_ms"] = "300000"  # on a busy machine Ray ends a node whose agent is slow
    variables["SPT_NOENV"] = "1"  # Ray writes titles over the environment otherwise, and HOME may be in the way
    subprocess.run(["ray", "get-auth-token", "--generate"], env=variables, check=True, capture_output=True)
    variables["RAY_AUTH_MODE"] = "token"
    gcs, dashboard, client, agent = ports or free_ports(4)
    command = ["ray", "start", "--head", "--block", "--num-cpus=2", "--object-store-memory=250000000"]
    command += ["--node-ip-address=127.0.0.1", f"--port={gcs}", f"--dashboard-port={dashboard}"]
    command += [f"--ray-client-server-port={client}", f"--dashboard-agent-listen-port={agent}"]
    command += ["--min-worker-port=0", "--max-worker-port=0", "--disable-usage-stats"]
    with (home / "head.log").open("wb") as log:
        process = subprocess.Popen(command, env=variables, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait_for(lambda: listening(gcs) and listening(dashboard), START_S, "the head node to listen")
        yield Head(f"127.0.0.1:{gcs}", f"http://127.0.0.1:{dashboard}", home, variables)
    finally:
        end_processes_of(home)
        process.wait(START_S)


@contextmanager
def another_node(head, cpus=1):
    """A second node of the cluster, simulated on this host; yields the process that its raylet is a child of."""
    process = start_node(head, cpus)
    try:
        wait_for(lambda: alive_nodes(head) == 2, START_S, "the second node")
        yield process
    finally:
        below = descendants(process.pid)
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
        for pid in (*below, process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(START_S)
        wait_for(lambda: alive_nodes(head) == 1, START_S, "the end of the second node")


def start_node(head, cpus=1):
    """Begin to start a second node."""
    (agent,) = free_ports(1)
    place = head.home / "n"  # nodes of one host that share a directory remove each other's working copies
    place.mkdir(exist_ok=True)
    command = ["ray", "start", "--block", f"--address={head.address}", f"--num-cpus={cpus}"]
    command += ["--node-ip-address=127.0.0.1", "--object-store-memory=100000000", "--disable-usage-stats"]
    command += ["--min-worker-port=0", "--max-worker-port=0", f"--dashboard-agent-listen-port={agent}"]
    command += [f"--temp-dir={place}"]
    with (head.home / "node.log").open("ab") as log:
        return subprocess.Popen(command, env=head.environment, stdout=log, stderr=subprocess.STDOUT)


def alive_nodes(head):
    """How many nodes the cluster counts as alive, as its dashboard tells."""
    token = (head.home / ".ray" / "auth_token").read_text().strip()
    request = urllib.request.Request(  # noqa: S310 - our own head node
        f"{head.dashboard}/api/v0/nodes", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - our own head node
        nodes = json.load(answer)["data"]["result"]["result"]
    return sum(node["state"] == "ALIVE" for node in nodes)


def listening(port):
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(condition, timeout_s, what):
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what() if callable(what) else what}"
        time.sleep(0.1)
    return value


def processes_of(home):
    """Ids of the processes that were started with this home, and are no zombies."""
    marker = f"HOME={home}".encode()
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if marker in (directory / "environ").read_bytes().split(b"\0"):
                found.append(int(directory.name))
        except OSError:
            continue
    return found


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def end_processes_of(home):
    for pid in processes_of(home):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
