"""Joining the cluster that is there, or starting one of our own and stopping it again.

Not here: what runs on it. `--address` or `RAY_ADDRESS` (a job has it) means an existing cluster, which is left as it
was; otherwise Ray starts on this host alone, under a lock, so that two sweeps never both own all GPUs. Caller:
`run.sweep`.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import logging
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rtxscale.errors import RunError
from rtxscale.run.host_lock import host_lock
from rtxscale.run.processes import kill, started_with
from rtxscale.run.pulse import Pulse
from rtxscale.run.ray_setup import ray
from rtxscale.run.turn import NAMESPACE, wait_for_turn

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
STATE_S = 10.0
REMAINS_S = 5.0
"""How long to go on killing what a killed sweep left."""
OBJECT_STORE_BYTES = 300 * 1024 * 1024


def hub_name(run_id: str) -> str:
    """Name of the hub's actor."""
    return f"{HUB_PREFIX}{run_id}"


@dataclass(frozen=True, kw_only=True)
class Connection:
    """A connected driver: `ours` when this process started the cluster; `scratch` is a folder of our own.

    Where `pulse` says that the head node is lost, nothing of Ray's is called any more, as that would wait for it.
    """

    ours: bool
    scratch: Path
    pulse: Pulse


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
    with host_lock(temporary / "rtxscale-local.lock", metadata.get("rtxscale_run", "")):
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
    deadline = time.monotonic() + REMAINS_S
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
        _init_here(temporary, metadata)
        with _beating(ray.get_runtime_context().gcs_address, ours=True) as pulse:
            yield Connection(ours=True, scratch=scratch, pulse=pulse)
    finally:
        for name in marks:
            del os.environ[name]
        end_processes(lambda owner: owner == scratch)  # Ray's agents at times outlive their cluster


def _init_here(temporary: str | None, metadata: dict[str, str]) -> None:
    """Start Ray on this host."""
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
    except BaseException:
        ray.shutdown()
        raise


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
    with _beating(address, ours=False) as pulse:
        turn = wait_for_turn(metadata.get("rtxscale_run", ""), say, pulse)
        yield Connection(ours=False, scratch=scratch, pulse=pulse)
        if not pulse.lost:
            ray.kill(turn)


@contextmanager
def _beating(address: str, *, ours: bool) -> Iterator[Pulse]:
    """The head node's pulse while connected; on leaving disconnect, unless there is nothing left to disconnect from."""
    pulse = Pulse(address, ours=ours)
    pulse.start()
    try:
        yield pulse
    finally:
        pulse.stop()
        if pulse.lost:
            atexit.register(_leave_at_once)
        else:
            ray.shutdown()


def _leave_at_once() -> None:
    """End this process without Ray's own clean-up.

    That waits for the lost head node until Ray's minute is over, writes a text of its own over ours, and has been seen
    to end in a fault.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(RunError.exit_code)


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
