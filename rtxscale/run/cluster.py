"""Joining the cluster that is there, or starting one of our own and stopping it again.

Not here: what runs on it. `--address` or `RAY_ADDRESS` (a job has it) means an existing cluster, which is left as it
was; otherwise Ray starts on this host alone, under a lock, so that two sweeps never both own all GPUs. Caller:
`run.sweep`.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import logging
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from rtxscale.errors import RunError
from rtxscale.run.nodes import beside_driver
from rtxscale.run.processes import kill, started_with
from rtxscale.run.ray_setup import ray

NAMESPACE = "rtxscale"
OWNER_VARIABLE = "RTXSCALE_LOCAL_CLUSTER"
"""Marks every process of a cluster of our own with that cluster's scratch folder."""
KEEP_ENVIRONMENT_VARIABLE = "SPT_NOENV"
"""Ray names its Python processes by writing over their start-up memory, from the arguments into the environment.
Raylets pass variables on in no fixed order, so the one written over could be the mark above, and the process would be
missed. With this set, as the setproctitle library documents, the environment is left alone."""
LOCAL_PREFIX = "rtxscale-local-"
JOINED_PREFIX = "rtxscale-joined-"
HUB_PREFIX = "rtxscale-hub-"
PROBE_TIMEOUT_S = 2.0
TURN_NAME = "rtxscale-turn"
TURN_PERIOD_S = 1.0
STATE_S = 10.0
PREDECESSOR_S = 5.0
"""How long to wait for a sweep that is just ending; a killed one frees its lock and its cluster in about 2 s."""
OBJECT_STORE_BYTES = 300 * 1024 * 1024


def hub_name(run_id: str) -> str:
    """Name of the hub's actor."""
    return f"{HUB_PREFIX}{run_id}"


@dataclass(frozen=True, kw_only=True)
class Connection:
    """A connected driver: `ours` when this process started the cluster; `scratch` is a folder of our own."""

    ours: bool
    scratch: Path


@contextmanager
def connected(
    address: str | None, metadata: dict[str, str], say: Callable[[str], None] = print
) -> Iterator[Connection]:
    """Connect, and on leaving disconnect; a cluster of our own is stopped and its temporary files are removed.

    Sweeps on one cluster queue for its GPUs: `say` is told what this one waits for.

    Raises:
        RunError: the address is wrong, nobody answers there, the token is refused, or another sweep is running on
            this host alone.
    """
    if address is not None:
        with _scratch(JOINED_PREFIX) as scratch:
            yield from _joined(address, scratch, metadata, say)
        return
    temporary = Path(tempfile.gettempdir())
    with local_lock(temporary / "rtxscale-local.lock", metadata.get("rtxscale_run", "")):
        remove_remains(temporary)
        with _scratch(LOCAL_PREFIX) as scratch:
            yield from _started(scratch, metadata)


def remove_remains(temporary: Path) -> None:
    """What a killed sweep left on this host: Ray's agents, which outlive their cluster by minutes, and its files.

    The caller holds the host's lock, so whoever these belonged to is dead.
    """
    end_processes(lambda scratch: scratch.parent == temporary)
    for scratch in temporary.glob(f"{LOCAL_PREFIX}*"):
        shutil.rmtree(scratch, ignore_errors=True)


def end_processes(belongs: Callable[[Path], bool]) -> None:
    """Kill the processes of clusters of our own whose scratch folder `belongs`.

    Again and again, for a few seconds: what is dying may still have started something.
    """
    deadline = time.monotonic() + PREDECESSOR_S
    while left := [pid for pid, scratch in started_with(OWNER_VARIABLE).items() if belongs(Path(scratch))]:
        kill(left)
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)


@contextmanager
def _scratch(prefix: str) -> Iterator[Path]:
    """A temporary folder of our own."""
    scratch = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _started(scratch: Path, metadata: dict[str, str]) -> Iterator[Connection]:
    """A cluster on this host alone, up while the generator is suspended."""
    temporary = None if os.environ.get("RAY_TMPDIR") or len(str(scratch)) > 40 else str(scratch)
    silence()
    marks = {OWNER_VARIABLE: str(scratch), KEEP_ENVIRONMENT_VARIABLE: "1"}
    os.environ.update(marks)
    try:
        with _groups_of_their_own():
            ray.init(
                address="local",
                namespace=NAMESPACE,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                object_store_memory=OBJECT_STORE_BYTES,
                job_config=_job_config(metadata),
                _temp_dir=temporary,
            )
        yield Connection(ours=True, scratch=scratch)
    finally:
        ray.shutdown()
        for name in marks:
            del os.environ[name]
        end_processes(lambda owner: owner == scratch)  # Ray's agents at times outlive their cluster


@contextmanager
def _groups_of_their_own() -> Iterator[None]:
    """Start Ray's processes outside our process group.

    `timeout`, service managers and job control signal the whole group; a cluster that dies of it before the driver has
    ended its session in order leaves the driver waiting for a minute.
    """
    services: Any = importlib.import_module("ray._private.services")
    start = services.ConsolePopen
    services.ConsolePopen = partial(start, process_group=0)
    try:
        yield
    finally:
        services.ConsolePopen = start


def _joined(address: str, scratch: Path, metadata: dict[str, str], say: Callable[[str], None]) -> Iterator[Connection]:
    """An existing cluster, joined while the generator is suspended."""
    join(address, metadata)
    try:
        turn = _wait_for_turn(metadata.get("rtxscale_run", ""), say)
        yield Connection(ours=False, scratch=scratch)
        ray.kill(turn)
    finally:
        ray.shutdown()


def states_at(address: str) -> list[tuple[str, Any]]:
    """The sweeps that run on a cluster: run id, and a `LiveState` or None while it starts.

    Raises:
        RunError: no cluster there, or it refuses us.
    """
    join(address, {})
    try:
        names = _hubs()
        hubs: list[Any] = [ray.get_actor(name, namespace=NAMESPACE) for name in names]
        states: list[Any] = ray.get([hub.state.remote() for hub in hubs], timeout=STATE_S)
    except (ValueError, ray.exceptions.RayError) as error:
        raise RunError(
            f"found a sweep at {address} that does not answer ({type(error).__name__}); it may just have ended: "
            "ask again"
        ) from error
    finally:
        ray.shutdown()
    return [(name.removeprefix(HUB_PREFIX), state) for name, state in zip(names, states, strict=True)]


def join(address: str, metadata: dict[str, str]) -> None:
    """Connect to a cluster that runs already.

    Raises:
        RunError: the address is wrong, nobody answers there, or the token is refused.
    """
    probe(address)
    silence()
    try:
        ray.init(
            address=address,
            namespace=NAMESPACE,
            log_to_driver=False,
            logging_level=logging.ERROR,
            job_config=_job_config(metadata),
        )
    except (ConnectionError, ray.exceptions.RayError, RuntimeError) as error:
        ray.shutdown()
        raise RunError(
            f"found a listener at {address}, but Ray could not connect: {' '.join(str(error).split())[:300]}; "
            "expected a Ray cluster of the same version; with token authentication the same token must be in "
            "~/.ray/auth_token (or RAY_AUTH_TOKEN) and RAY_AUTH_MODE=token on both sides"
        ) from error


def probe(address: str) -> None:
    """Check in at most two seconds that somebody listens at `host:port`; Ray alone would retry for minutes.

    Raises:
        RunError: the address has another form, or nobody listens there.
    """
    host, _, port = address.rpartition(":")
    if "/" in address or not host or not port.isdigit():
        raise RunError(
            f"found the cluster address {address!r}; expected host:port of the head node's GCS, as `ray start --head` "
            "prints it (the dashboard's http:// address is for `ray job submit`)"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_TIMEOUT_S).close()
    except OSError as error:
        raise RunError(
            f"found no cluster at {address} ({error}); expected a running head node there: start one with "
            "`ray start --head`, or leave out --address and unset RAY_ADDRESS to run on this host alone"
        ) from error


@contextmanager
def local_lock(path: Path, holder: str) -> Iterator[None]:
    """Hold this host's lock for clusters of our own; the kernel frees it when the process dies.

    Raises:
        RunError: another sweep on this host still holds it after a few seconds.
    """
    with _open_lock(path) as lock:
        deadline = time.monotonic() + PREDECESSOR_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(0.1)
                    continue
                lock.seek(0)
                raise RunError(
                    f"found another sweep running on this host ({lock.read().strip() or 'no name'}, {path}); expected "
                    "the GPUs for ourselves: wait for it, or run both on one Ray cluster one after the other"
                ) from None
        if lock.writable():
            lock.truncate(0)
            lock.write(f"process {os.getpid()}, run {holder}\n")
            lock.flush()
        yield


def _open_lock(path: Path) -> TextIO:
    """The lock file; another user's is opened for reading, which is enough to lock it."""
    try:
        return path.open("a+")
    except PermissionError:
        return path.open("r")


class Turn:
    """Runs inside the one actor of its name: who has it, has the cluster's GPUs. It ends with its driver."""

    def __init__(self, run: str) -> None:
        """Belong to a run."""
        self._run = run

    def holder(self) -> str:
        """Whose turn it is."""
        return self._run


def _wait_for_turn(run: str, say: Callable[[str], None]) -> Any:
    """Wait until no other sweep runs on this cluster; returns the turn, to be kept.

    Ray lets only one actor have a name, so of two that wait one gets it. On another node than the driver's it could be
    lost with that node before it ran, and Ray would keep its name for good.
    """
    began, last = time.monotonic(), ""
    while True:
        with contextlib.suppress(ValueError, ray.exceptions.RayError):  # the name is taken, or its owner is just ending
            options = {"name": TURN_NAME, "num_cpus": 0, "max_restarts": 0, "scheduling_strategy": beside_driver()}
            turn: Any = ray.remote(Turn).options(**options).remote(run)
            ray.get(turn.holder.remote())
            return turn
        holder = _holder_of_turn()
        if holder and holder != last and time.monotonic() - began > PREDECESSOR_S:
            last = holder
            say(f"waiting for the GPUs: {holder} is running on this cluster; Ctrl-C to leave the queue")
        time.sleep(TURN_PERIOD_S)


def _holder_of_turn() -> str:
    """The run whose turn it is, empty if that cannot be told just now."""
    try:
        turn: Any = ray.get_actor(TURN_NAME, namespace=NAMESPACE)
        return str(ray.get(turn.holder.remote(), timeout=STATE_S))
    except (ValueError, ray.exceptions.RayError):
        return ""


def _hubs() -> list[str]:
    """Names of the hubs that are alive on the cluster."""
    return [
        actor["name"]
        for actor in ray.util.list_named_actors(all_namespaces=True)
        if actor["namespace"] == NAMESPACE and actor["name"].startswith(HUB_PREFIX)
    ]


def _job_config(metadata: dict[str, str]) -> Any:
    """What the dashboard and the job list show beside the driver."""
    return ray.job_config.JobConfig(metadata=metadata)


def silence() -> None:
    """Keep Ray's own chatter out of the sweep's output; errors still reach us as exceptions."""
    import ray._private.worker as ray_worker

    for name in ("ray", "ray.tune", "ray.train", "ray.data"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # "(raylet) A worker died ..." goes to stdout whatever log_to_driver says
    if hasattr(ray_worker, "print_to_stdstream"):
        ray_worker.print_to_stdstream = lambda *_args, **_options: None
