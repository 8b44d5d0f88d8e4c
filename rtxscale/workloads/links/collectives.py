"""Raw collectives as a workload: what warms up before they are timed, and what is timed.

The timing itself is in `links.timing` and `links.bucket_replay`. Callers: `registry` (a sweep of
collectives) and `rank.trial`, which times them, also as the probe after a cell's window.
"""

from __future__ import annotations

from collections.abc import Callable

from rtxscale.nccl.attest import Attested, Verdict
from rtxscale.spec.workload import CollectivesWorkload
from rtxscale.workloads.links.bucket_replay import Replay, time_replay
from rtxscale.workloads.links.bucket_sizes import Layout, buckets_of
from rtxscale.workloads.links.timing import Message, Request, Timing, time_collectives
from rtxscale.workloads.protocol import Bucket, Context


def time_request(request: Request, context: Context) -> list[Timing]:
    """Time what is asked for; all ranks must call it together.

    Raises:
        ValueError: there is only one worker.
    """
    return time_replay(request.buckets, context) if request.buckets else time_collectives(request, context)


def request_of(workload: CollectivesWorkload, bucket_mib: float | None) -> Request:
    """What this workload wants timed; `bucket_mib` is DDP's cap where buckets are asked for."""
    if workload.buckets_of:
        return Request(buckets=buckets_of(workload.buckets_of, bucket_mib).buckets)
    return Request(operations=workload.operations, sizes_mib=workload.sizes_mib, dtype=workload.precision)


class Collectives:
    """Implements `kind: collectives`."""

    def prepare(self, context: Context) -> CollectivesWarmUp:
        """A message of the largest size to warm up with, or the buckets in order.

        Raises:
            ValueError: there is only one worker.
        """
        workload = context.workload
        if not isinstance(workload, CollectivesWorkload):
            raise TypeError(f"found workload {workload.kind}, expected collectives")
        if context.group is None:
            raise ValueError(f"found {context.world} worker; workload collectives needs at least 2 workers")
        if workload.buckets_of:
            layout = buckets_of(workload.buckets_of, context.bucket_mib)
            return CollectivesWarmUp(Replay(layout.buckets, context), layout, workload)
        return CollectivesWarmUp(
            Message(workload.operations[0], max(workload.sizes_mib), workload.precision, context), None, workload
        )


class CollectivesWarmUp:
    """What is sent over and over before anything is timed; see `protocol.Running`."""

    unit = "operation"
    work_per_step: float | None = None

    def __init__(self, message: Callable[[], None], layout: Layout | None, workload: CollectivesWorkload) -> None:
        """`message` sends; `layout` is of the buckets that are sent, None where there are none."""
        self._message: Callable[[], None] | None = message
        self._layout, self._source = layout, workload.buckets_of

    def step(self) -> float:
        """One operation, or all buckets once."""
        if self._message is not None:
            self._message()
        return 0.0

    def loss(self) -> float | None:
        """There is none."""
        return None

    def buckets(self) -> tuple[Bucket, ...]:
        """The buckets that are replayed; none where messages are sent."""
        return () if self._layout is None else self._layout.buckets

    def attest(self) -> tuple[Attested, ...]:
        """How the buckets came about; of messages nothing beyond what NCCL's log shows."""
        if self._layout is None:
            return ()
        count, parameters = len(self._layout.buckets), sum(one.parameters for one in self._layout.buckets)
        order = "in the order of its gradients" if self._layout.seen else "in the reverse order of its parameters"
        row = Attested(
            subject="workload.buckets_of",
            requested=self._source,
            observed=f"{count:,} buckets of {parameters:,} parameters, {order}",
            verdict=Verdict.HONOURED,
            evidence="PyTorch's own division into buckets, which DDP calls, on the model without memory",
        )
        return (row,)

    def apart(self) -> None:
        """Without communication there is no step."""

    def close(self) -> None:
        """Free the message."""
        self._message = None
