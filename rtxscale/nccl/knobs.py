"""NCCL settings under test, and how each version of NCCL has to be told about them.

Rendering is a pure function of the knobs, NCCL's version and the collectives in use; nothing here reads or writes the
environment. `rank` sets what is rendered, `plan` asks `refusal`, `nccl.attest` checks afterwards what NCCL did.
Version facts were read in NVIDIA/nccl at the tags named (`src/graph/tuning.cc`, `src/include/device.h`, `src/init.cc`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Version = tuple[int, int, int]

DEBUG_ENVIRONMENT: dict[str, str] = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,TUNING,GRAPH"}
"""What makes NCCL log its choices; the caller adds NCCL_DEBUG_FILE. Refused settings are logged under GRAPH and ENV."""

COMMUNICATOR_VARIABLES: tuple[str, ...] = ("NCCL_ALGO", "NCCL_PROTO")
"""Everything `communicator_environment` may set: remove what it does not return before the next communicator."""

PROCESS_VARIABLES: tuple[str, ...] = ("NCCL_P2P_DISABLE", "NCCL_NVLS_ENABLE")
"""Everything `process_environment` may set."""

ALGORITHM_FORMS: tuple[tuple[Version, str], ...] = (
    # From 2.31 the table of algorithms starts at zero once NCCL_ALGO is set, so a collective that is not named has none
    # (vllm-project/vllm#58179, where this form is reported to work on 2.30 and 2.31).
    ((2, 31, 0), "ring,tree;allreduce:{algorithm}"),
    # parseList takes function prefixes since v2.24.3, which also dropped the fall-back to ring: a bare `tree` leaves
    # broadcast, all-gather and reduce-scatter with no algorithm at all.
    ((2, 24, 0), "allreduce:{algorithm}"),
    # No prefixes: a token it does not know is silently no algorithm. What has no tree falls back to ring (v2.19.1 on).
    ((0, 0, 0), "{algorithm}"),
)
"""First version of each way to force the all-reduce algorithm and leave the other collectives usable."""

CHANNEL_LIMITS: tuple[tuple[Version, int], ...] = (
    ((2, 25, 0), 64),  # MAXCHANNELS in v2.25.1
    ((2, 17, 0), 32),  # MAXCHANNELS in v2.17.1, the first with minCTAs and maxCTAs in ncclConfig_t
    ((0, 0, 0), 0),
)
"""First version of each upper limit of min_ctas and max_ctas."""

FIRST_TREE_ALONE: Version = (2, 19, 0)
"""Before v2.19.1 a forced tree fails every collective but all-reduce, which DDP needs at its start."""


@dataclass(frozen=True, kw_only=True)
class Knobs:
    """NCCL settings of one cell; `auto` and None leave the choice to NCCL.

    `algorithm` (ring, tree) concerns all-reduce alone, `channels` and `protocol` (ll, ll128, simple) every collective,
    `p2p: disabled` every transport between GPUs.
    """

    algorithm: str = "auto"
    channels: int | None = None
    protocol: str = "auto"
    p2p: str = "auto"


def process_environment(knobs: Knobs) -> dict[str, str]:
    """Variables that NCCL caches for the life of the process: to be set before its first communicator.

    NVLink multicast (NVLS) moves data between GPUs without a P2P transport, so it is switched off with P2P.

    >>> process_environment(Knobs(p2p="disabled"))
    {'NCCL_P2P_DISABLE': '1', 'NCCL_NVLS_ENABLE': '0'}
    """
    if knobs.p2p == "disabled":
        return {"NCCL_P2P_DISABLE": "1", "NCCL_NVLS_ENABLE": "0"}
    return {}


def communicator_environment(knobs: Knobs, version: Version, collectives: frozenset[str]) -> dict[str, str]:
    """Variables that NCCL reads when a communicator is created.

    `collectives` holds the names of those in use (`all_reduce`, `broadcast`, ...). Without all-reduce there is nothing
    to force an algorithm on. The protocol needs no function prefix in any version: every collective has all three
    protocols on a ring.

    >>> communicator_environment(Knobs(algorithm="tree", protocol="ll"), (2, 28, 9), frozenset({"all_reduce"}))
    {'NCCL_ALGO': 'allreduce:tree', 'NCCL_PROTO': 'll'}
    """
    variables = {}
    if knobs.algorithm != "auto" and "all_reduce" in collectives:
        form = next(form for since, form in ALGORITHM_FORMS if version >= since)
        variables["NCCL_ALGO"] = form.format(algorithm=knobs.algorithm)
    if knobs.protocol != "auto":
        variables["NCCL_PROTO"] = knobs.protocol
    return variables


def config_ctas(knobs: Knobs) -> int | None:
    """Value of both `min_ctas` and `max_ctas` in the communicator's config; None leaves them alone.

    NCCL_MIN_NCHANNELS and NCCL_MAX_NCHANNELS do nothing once a process has had a communicator, and say nothing.
    """
    return knobs.channels


def channel_limit(version: Version | None) -> int:
    """Most channels a communicator of this version can be told to use; an unknown version is taken for the newest.

    >>> channel_limit((2, 16, 5)), channel_limit((2, 24, 3)), channel_limit((2, 25, 1)), channel_limit(None)
    (0, 32, 64, 64)
    """
    if version is None:
        return CHANNEL_LIMITS[0][1]
    return next(limit for since, limit in CHANNEL_LIMITS if version >= since)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a rule judges: the knobs and where they would be used."""

    knobs: Knobs
    world: int
    version: Version | None
    unsafe: bool


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A reason why knobs cannot be used as asked: a name, when it applies, and what to tell the user."""

    name: str
    applies: Callable[[Request], bool]
    reason: Callable[[Request], str]


RULES: tuple[Rule, ...] = (
    Rule(
        name="ranks",
        applies=lambda request: request.knobs.algorithm != "auto" and request.world < 2,
        reason=lambda request: (
            f"nccl.algorithm {request.knobs.algorithm} needs at least 2 ranks, found {request.world}; use auto"
        ),
    ),
    Rule(
        name="unsafe_protocol",
        applies=lambda request: request.knobs.protocol == "ll128" and not request.unsafe,
        reason=lambda request: (
            "forcing nccl.protocol ll128 can corrupt data where NCCL does not choose it itself; "
            "set nccl.unsafe: true to accept that, or use auto"
        ),
    ),
    Rule(
        name="channels",
        applies=lambda request: (
            request.knobs.channels is not None and not 1 <= request.knobs.channels <= channel_limit(request.version)
        ),
        reason=lambda request: (
            f"nccl.channels {request.knobs.channels} is out of range for {version_text(request.version)}, "
            + limit_text(channel_limit(request.version))
        ),
    ),
    Rule(
        name="tree_alone",
        applies=lambda request: (
            request.knobs.algorithm == "tree" and request.version is not None and request.version < FIRST_TREE_ALONE
        ),
        reason=lambda request: (
            f"{version_text(request.version)} cannot force tree on all-reduce alone: broadcast and all-gather would "
            f"fail; use {version_text(FIRST_TREE_ALONE)} or newer"
        ),
    ),
)
"""Checked in this order; the first that applies is the answer."""


def refusal(knobs: Knobs, world: int, version: Version | None, unsafe: bool) -> str | None:
    """Why these knobs cannot work on `world` ranks with this NCCL, or None. Version None skips what depends on it.

    >>> refusal(Knobs(channels=40), 2, (2, 21, 5), False)
    'nccl.channels 40 is out of range for NCCL 2.21.5, which takes 1 to 32'
    """
    request = Request(knobs=knobs, world=world, version=version, unsafe=unsafe)
    return next((rule.reason(request) for rule in RULES if rule.applies(request)), None)


def version_text(version: Version | None) -> str:
    """`NCCL 2.28.9`, or `any NCCL` when the version is not known."""
    return "any NCCL" if version is None else "NCCL " + ".".join(map(str, version))


def limit_text(limit: int) -> str:
    """What a channel limit allows, in words."""
    return f"which takes 1 to {limit}" if limit else "which has no setting for them; NCCL 2.17 and newer have"
