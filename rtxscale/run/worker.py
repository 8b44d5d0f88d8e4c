"""What each rank of a Ray session runs: say who it is, then `rank.loop` over the hub's channel.

Runs in Ray Train's worker processes, with the Gloo group up and the session's environment in place; what a rank needs
is imported there, for the host only passes `serve` on. Caller: `run.host`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from rtxscale.rank.place import Place
from rtxscale.run.hub import HubChannel, Registered
from rtxscale.run.ray_setup import ray


def serve(arguments: dict[str, Any]) -> None:
    """Serve one session as one rank; `arguments` come from `run.session`."""
    from ray import train

    from rtxscale.rank.loop import run_rank

    context = train.get_context()
    device = arguments["device"]
    place = Place(
        rank=context.get_world_rank(),
        world=context.get_world_size(),
        local_rank=context.get_local_rank(),
        device=device,
        threads=arguments["threads"],
    )
    hub, session_id = arguments["hub"], arguments["session_id"]
    ray.get(hub.register.remote(session_id, who_am_i(place, arguments["expected"])))
    run_rank(HubChannel(hub, session_id, place.rank), place)


def settle_interface() -> None:
    """Let Gloo listen where other nodes reach this one, unless the user has chosen.

    By default it listens at the address that the host's own name stands for, which Debian and Ubuntu put on the
    loopback: then ranks of other nodes cannot connect.
    """
    from rtxscale.telemetry.host import interface_of

    if name := interface_of(ray.util.get_node_ip_address()):  # type: ignore[no-untyped-call]  # untyped in Ray
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def who_am_i(place: Place, expected: Iterable[str]) -> Registered:
    """What this rank is and has, and the variables named in `expected` as it sees them."""
    from rtxscale.rank.environment import describe_software

    group = ray.util.get_current_placement_group()
    return Registered(
        rank=place.rank,
        pid=os.getpid(),
        node=ray.get_runtime_context().get_node_id(),
        gpu_uuid=gpu_uuid(place.local_rank) if place.device == "cuda" else None,
        placement_group=group.id.hex() if group else None,
        environment={name: os.environ[name] for name in expected if name in os.environ},
        software=tuple(describe_software(place.device)),
    )


def gpu_uuid(local_rank: int) -> str:
    """UUID of this rank's GPU as NVML writes it."""
    import torch

    torch.cuda.set_device(local_rank)
    uuid = str(torch.cuda.get_device_properties(local_rank).uuid)
    return uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"
