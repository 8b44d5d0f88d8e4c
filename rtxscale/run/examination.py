"""The doctor on every node of a cluster: one actor pinned to each, asked all at once, gone afterwards.

A node that does not answer in time is a finding, not an end. What is looked at and judged is `doctor`'s. Callers:
`cli.doctor` with an address, `run.sweep` for clusters of several nodes.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import rtxscale
from rtxscale.doctor.cluster import ClusterExamination, cluster_rows, examine_nodes
from rtxscale.doctor.cluster_rules import ClusterFacts, NodeFacts
from rtxscale.doctor.collect import collect
from rtxscale.doctor.facts import Facts, TransferFacts
from rtxscale.doctor.preflight import refuse, without_gpus
from rtxscale.doctor.transfers import measure_transfers
from rtxscale.run.cluster import join
from rtxscale.run.nodes import alive_nodes, clock_here, offset_of, pinned
from rtxscale.run.ray_setup import ray

QUICK_S = 120.0
"""A cold node starts a Python process, imports rtxscale and asks nvidia-smi."""
TRANSFERS_S = 900.0
ALL_GPUS = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""Keeps older versions of Ray from hiding the GPUs from whoever holds none."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What every node is asked to look at."""

    results_root: str
    quick: bool = True
    psu_w: float | None = None


class Examiner:
    """Runs inside its actor on one node."""

    def look(self, asked: Asked) -> tuple[Facts, tuple[tuple[str, str], ...]]:
        """The node's facts, transfers included unless quick, and versions that must be equal everywhere."""
        root = Path(asked.results_root)
        facts = collect(root, quick=asked.quick, environment=users_environment(os.environ), psu_w=asked.psu_w)
        transfers = TransferFacts(not_run="--quick") if asked.quick else measure_transfers(facts)
        versions = (("Python", platform.python_version()), ("rtxscale", rtxscale.__version__))
        return replace(facts, transfers=transfers), versions

    def clock(self) -> tuple[str, int]:
        """Which running kernel this is, and its Unix time in ns."""
        return clock_here()


def users_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables as whoever started the node left them: what Ray sets for its own workers is no setting.

    >>> users_environment({"RAY_ADDRESS": "10.0.0.1:6379", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "0"})
    {'OMP_NUM_THREADS': '1', 'CUDA_VISIBLE_DEVICES': '0'}
    """
    return {name: value for name, value in environment.items() if name != "RAY_ADDRESS"}


def examine_at(address: str, asked: Asked, ignore: Collection[str]) -> ClusterExamination:
    """Join the cluster at host:port, examine all of its nodes, and leave it as it was.

    Raises:
        RunError: no cluster there, or it refuses us.
    """
    join(address, {})
    try:
        return examine_cluster(
            asked, ignore, {node["NodeID"]: f"node{place}" for place, node in enumerate(alive_nodes())}
        )
    finally:
        ray.shutdown()


def examine_cluster(asked: Asked, ignore: Collection[str], names: Mapping[str, str]) -> ClusterExamination:
    """Examine the nodes that `names` has a name for, by Ray's id, of the cluster that this process is connected to."""
    nodes = [node for node in alive_nodes() if node["NodeID"] in names]
    actors = [_examiner(node) for node in nodes]
    try:
        answers = [actor.look.remote(asked) for actor in actors]
        limit_s = QUICK_S if asked.quick else TRANSFERS_S
        ready, _ = ray.wait(answers, num_returns=len(answers), timeout=limit_s)
        found = [
            _node_facts(names[node["NodeID"]], node, actor, answer if answer in ready else None, limit_s)
            for node, actor, answer in zip(nodes, actors, answers, strict=True)
        ]
    finally:
        for actor in actors:
            ray.kill(actor)
    return examine_nodes(ClusterFacts(nodes=tuple(found)), ignore)


def preflight_nodes(
    results_root: Path, ignore: Collection[str], *, on_cpu: bool, names: Mapping[str, str]
) -> tuple[dict[str, str], ...]:
    """What a quick look at the named nodes finds, as rows to be kept; for CPU workers as if there were no GPUs.

    Raises:
        RunError: there is an error that is not ignored.
    """
    found = examine_cluster(Asked(results_root=str(results_root)), ignore, names)
    if on_cpu:
        nodes = tuple(
            replace(node, facts=None if node.facts is None else without_gpus(node.facts))
            for node in found.cluster.nodes
        )
        found = examine_nodes(ClusterFacts(nodes=nodes), ignore)
    refuse(found.errors)
    return tuple(cluster_rows(found))


def _examiner(node: Mapping[str, Any]) -> Any:
    options = {"num_cpus": 0, "max_restarts": 0, "scheduling_strategy": pinned(node["NodeID"])}
    return ray.remote(Examiner).options(runtime_env={"env_vars": ALL_GPUS}, **options).remote()


def _node_facts(name: str, node: Mapping[str, Any], actor: Any, answer: Any, limit_s: float) -> NodeFacts:
    """What one node answered, or why it did not; `answer` is None when it was not there in time."""
    known = NodeFacts(name=name, address=node["NodeManagerAddress"])
    if answer is None:
        return replace(known, problem=f"no answer in {limit_s:.0f} s")
    try:
        facts, versions = ray.get(answer)
        return replace(known, facts=facts, versions=versions, clock=offset_of(actor))
    except ray.exceptions.RayError as error:
        said = " ".join(str(error).split())
        return replace(known, problem=f"{type(error).__name__}: {said[-300:]}")
