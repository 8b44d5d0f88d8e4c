"""Joining the cluster that is there, or starting one of our own and stopping it again.

Not here: what runs on it. `--address` or `RAY_ADDRESS` (a job has it) means an existing cluster, which is left as it
was; otherwise Ray starts on this host alone, under a lock, so that two sweeps never both own all GPUs. Caller:
`run.sweep`.
"""

from __future__ import annotations

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
PREDECESSOR_S = 5.0
"""How long to wait for a sweep that is just ending; a killed one frees its lock and its cluster in about 2 s."""
OBJECT_STORE_BYTES = 300 * 1024 * 1024


def hub_name(run_id: str) -> str:
    """Name of the hub's actor; a cluster that has one is in use."""
    return f"{HUB_PREFIX}{run_id}"


@dataclass(frozen=True, kw_only=True)
class Connection:
    """A connected driver: `ours` when this process started the cluster; `scratch` is a folder of our own."""

    ours: bool
    scratch: Path


@contextmanager
def connected(address: str | None, metadata: dict[str, str]) -> Iterator[Connection]:
    """Connect, and on leaving disconnect; a cluster of our own is stopped and its temporary files are removed.

    Raises:
        RunError: the address is wrong, nobody answers there, the token is refused, or another sweep is running.
    """
    if address is not None:
        with _scratch(JOINED_PREFIX) as scratch:
            yield from _joined(address, scratch, metadata)
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


def _joined(address: str, scratch: Path, metadata: dict[str, str]) -> Iterator[Connection]:
    """An existing cluster, joined while the generator is suspended."""
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
    try:
        _only_sweep()
        yield Connection(ours=False, scratch=scratch)
    finally:
        ray.shutdown()


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


def _only_sweep() -> None:
    """Refuse a cluster on which another sweep's hub is alive.

    Raises:
        RunError: there is one.
    """
    deadline = time.monotonic() + PREDECESSOR_S
    while others := [
        actor["name"]
        for actor in ray.util.list_named_actors(all_namespaces=True)
        if actor["namespace"] == NAMESPACE and actor["name"].startswith(HUB_PREFIX)
    ]:
        if time.monotonic() > deadline:
            names = ", ".join(name.removeprefix(HUB_PREFIX) for name in others)
            raise RunError(
                f"found another sweep running on this cluster ({names}); expected the GPUs for ourselves: wait for it"
            )
        time.sleep(0.2)


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
