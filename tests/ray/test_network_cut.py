"""Two hosts as network namespaces, and the cable between them pulled under a trial: opt-in, for root on Linux."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from conftest import REPOSITORY, START_S, Head, alive_nodes, clean_environment, end_processes_of, free_ports, wait_for
from tiny import sweep_file, trials_of

VARIABLE = "RTXSCALE_NETWORK_CUT"
DEADLINE_S = 300
CLONE_NEWNET = 0x40000000
pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(VARIABLE not in os.environ, reason=f"takes some minutes and needs root: set {VARIABLE}=1"),
]


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Hosts:
    """Two namespaces with a cable between them."""

    def __init__(self):
        mark = f"{os.getpid() % 10_000:04d}"
        self.names = (f"rxa{mark}", f"rxb{mark}")
        self.cable = (f"rxv{mark}", f"rxw{mark}")
        self.addresses = ("10.213.77.1", "10.213.77.2")
        self.started = []

    def __enter__(self):
        for name in self.names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("link", "add", self.cable[0], "netns", self.names[0], "type", "veth", "peer", self.cable[1])
        ip("link", "set", self.cable[1], "netns", self.names[1])
        for name, end, address in zip(self.names, self.cable, self.addresses, strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", end)
            ip("-n", name, "link", "set", end, "up")
        return self

    def __exit__(self, *_error):
        for process in self.started:  # all of them have been ended by now
            process.wait(30)
        for name in self.names:
            ip("netns", "del", name)

    def cut(self):
        ip("-n", self.names[0], "link", "set", self.cable[0], "down")

    def mend(self):
        ip("-n", self.names[0], "link", "set", self.cable[0], "up")

    def start(self, host, words, environment, log):
        """A process on one of the hosts."""
        command = ["ip", "netns", "exec", self.names[host], *words]
        process = subprocess.Popen(
            command, env=environment, cwd=REPOSITORY, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        self.started.append(process)
        return process

    def inside(self, host, ask):
        """What `ask` returns in a thread whose sockets are on that host; None if it fails."""
        found = []

        def work():
            with Path(f"/run/netns/{self.names[host]}").open() as namespace:
                assert ctypes.CDLL(None).setns(namespace.fileno(), CLONE_NEWNET) == 0
            try:
                found.append(ask())
            except OSError:
                found.append(None)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return found[0] if found else None


@pytest.fixture
def hosts():
    if os.geteuid() != 0:
        pytest.skip("only root can make network namespaces")
    try:
        with Hosts() as made:
            yield made
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no network namespaces here: {error}")


@pytest.fixture
def cluster(hosts, home, tmp_path):
    """A head on one host, ready for a second node, and where to find it."""
    place = home / "cut"
    (place / "t").mkdir(parents=True)
    variables = clean_environment(place) | {"RAY_TMPDIR": str(place), "SPT_NOENV": "1"}
    subprocess.run(["ray", "get-auth-token", "--generate"], env=variables, check=True, capture_output=True)
    variables["RAY_AUTH_MODE"] = "token"
    gcs, dashboard, client = free_ports(3)
    words = ["ray", "start", "--head", "--block", "--num-cpus=2", f"--port={gcs}", f"--dashboard-port={dashboard}"]
    words += [f"--node-ip-address={hosts.addresses[0]}", f"--ray-client-server-port={client}"]
    words += ["--object-store-memory=100000000", "--disable-usage-stats"]
    head = Head(f"{hosts.addresses[0]}:{gcs}", f"http://127.0.0.1:{dashboard}", place, variables)
    with (tmp_path / "head.log").open("wb") as log:
        hosts.start(0, words, variables, log)
    try:
        wait_for(lambda: hosts.inside(0, lambda: alive_nodes(head)) == 1, START_S, "the head")
        yield head
    finally:
        end_processes_of(place)


@contextmanager
def far_node(hosts, head, tmp_path):
    words = ["ray", "start", "--block", f"--address={head.address}", "--num-cpus=1"]
    words += [f"--node-ip-address={hosts.addresses[1]}", "--object-store-memory=100000000", "--disable-usage-stats"]
    with (tmp_path / "node.log").open("ab") as log:
        process = hosts.start(1, words, head.environment, log)
    wait_for(lambda: hosts.inside(0, lambda: alive_nodes(head)) == 2, START_S, "the second node")
    yield
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(60)


def sweep_on(hosts, head, sweep, results, tmp_path):
    words = [sys.executable, "-m", "rtxscale", "sweep", str(sweep), "--results", str(results), "--no-report"]
    path = tmp_path / f"driver-{time.monotonic_ns()}.log"
    with path.open("wb") as log:
        return hosts.start(0, [*words, "--address", head.address], head.environment, log), path


def test_a_cable_pulled_under_a_trial_ends_it_in_time_and_the_sweep_resumes(hosts, cluster, tmp_path):
    sweep = sweep_file(tmp_path, "cut", gpus="[3]", buckets="[1, 25, 50]", window_s=8)
    results = tmp_path / "results"
    with ExitStack() as nodes:
        nodes.enter_context(far_node(hosts, cluster, tmp_path))
        driver, log = sweep_on(hosts, cluster, sweep, results, tmp_path)
        wait_for(lambda: "[1/" in log.read_text() or driver.poll() is not None, 200, log.read_text)
        time.sleep(3)
        hosts.cut()
        began = time.monotonic()
        code = driver.wait(DEADLINE_S + 60)
        took_s = time.monotonic() - began
        hosts.mend()
    said = log.read_text()
    (run_dir,) = results.iterdir()
    before = trials_of(run_dir)
    assert code == 1, said
    assert took_s < DEADLINE_S, said
    assert [row["outcome"] for row in before] == ["ok", "crashed"], said
    assert "set aside; the same command runs them later" in said
    with ExitStack() as nodes:
        nodes.enter_context(far_node(hosts, cluster, tmp_path))
        driver, log = sweep_on(hosts, cluster, sweep, results, tmp_path)
        assert driver.wait(300) == 0, log.read_text()
    after = trials_of(run_dir)
    assert [row["trial_id"] for row in after][:2] == [row["trial_id"] for row in before]
    done = [row["trial_id"] for row in after if row["outcome"] == "ok"]
    assert len(done) == len(set(done)) == 4
