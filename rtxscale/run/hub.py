"""The hub of a sweep: one asynchronous, zero-CPU, named actor through which trials, orders and reports pass.

Two desks: ranks of a session register, wait for orders and hand reports over; Tune trials ask for a measurement and
wait for its outcome. It decides nothing. `HubChannel` is a rank's end of it. Callers: `run.session`, `run.worker`,
`run.tune_driver`, `run.foreman`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rtxscale.rank.channel import Order, RankReport
from rtxscale.results.live import LiveState
from rtxscale.results.outcomes import Outcome
from rtxscale.run.ray_setup import ray

UNBROKEN = frozenset({Outcome.OK, Outcome.DIVERGED, Outcome.NOT_HONOURED, Outcome.UNSTEADY, Outcome.CANCELLED})
"""What a rank can report while the others surely report too; after anything else they may hang in a collective."""


@dataclass(frozen=True, kw_only=True)
class Registered:
    """What a rank says when it starts: where it is, what it sees, and the placement group that holds it."""

    rank: int
    pid: int
    node: str
    gpu_uuid: str | None = None
    placement_group: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    software: tuple[dict[str, str], ...] = ()


class _Desk:
    """State of one session."""

    def __init__(self, world: int) -> None:
        self.registered: dict[int, Registered] = {}
        self.queues: dict[int, asyncio.Queue[Order | None]] = {rank: asyncio.Queue() for rank in range(world)}
        self.reports: dict[tuple[str, int], dict[int, RankReport]] = {}


class Hub:
    """Runs inside its actor; every method is asynchronous."""

    def __init__(self) -> None:
        """Nobody is waiting yet."""
        self._desks: dict[str, _Desk] = {}
        self._requests: asyncio.Queue[tuple[str, int] | None] = asyncio.Queue()
        self._outcomes: dict[tuple[str, int], asyncio.Future[str]] = {}
        self._shut = asyncio.Event()
        self._state: LiveState | None = None
        self._changed = asyncio.Condition()

    # A session's desk

    async def open(self, session_id: str, world: int) -> None:
        """Make room for a session of `world` ranks."""
        self._desks[session_id] = _Desk(world)

    async def register(self, session_id: str, place: Registered) -> None:
        """A rank is up."""
        desk = self._desks.get(session_id)
        if desk is not None:
            desk.registered[place.rank] = place
        await self._notify()

    async def ready(self, session_id: str, timeout_s: float) -> dict[int, Registered]:
        """The ranks that are up: all of them, or those that made it in `timeout_s`."""
        desk = self._desks[session_id]
        await self._until(lambda: len(desk.registered) == len(desk.queues), timeout_s)
        return dict(desk.registered)

    async def take(self, session_id: str, rank: int) -> Order | None:
        """The rank's next order; None ends the session."""
        return await self._desks[session_id].queues[rank].get()

    async def give(self, session_id: str, order: Order) -> None:
        """Hand the order to every rank."""
        desk = self._desks[session_id]
        desk.reports[order.trial_id, order.attempt] = {}
        for queue in desk.queues.values():
            queue.put_nowait(order)

    async def finish(self, session_id: str, trial_id: str, attempt: int, report: RankReport) -> None:
        """A rank's report; one for an order nobody waits for any more is dropped."""
        desk = self._desks.get(session_id)
        if desk is not None and (trial_id, attempt) in desk.reports:
            desk.reports[trial_id, attempt][report.rank] = report
        await self._notify()

    async def reports(
        self, session_id: str, trial_id: str, attempt: int, deadline_s: float, grace_s: float
    ) -> dict[int, RankReport]:
        """Reports by rank: all, or those in hand at the deadline, at the hub's end, or `grace_s` after a broken one."""
        desk = self._desks[session_id]
        got = desk.reports[trial_id, attempt]

        def complete() -> bool:
            return len(got) == len(desk.queues)

        def broken() -> bool:
            return complete() or any(report.outcome not in UNBROKEN for report in got.values())

        if await self._until(broken, deadline_s) and not complete():
            await self._until(complete, grace_s)
        desk.reports.pop((trial_id, attempt), None)
        return dict(got)

    async def reports_now(self, session_id: str, trial_id: str, attempt: int) -> dict[int, RankReport]:
        """Reports in hand; nobody waits for the others any more."""
        return self._desks[session_id].reports.pop((trial_id, attempt), {})

    async def close(self, session_id: str) -> None:
        """Tell every rank that there is no more work."""
        for queue in self._desks[session_id].queues.values():
            queue.put_nowait(None)

    async def drop(self, session_id: str) -> None:
        """Forget a session."""
        self._desks.pop(session_id, None)

    # The desk of the Tune trials

    async def request(self, trial_id: str, attempt: int) -> str:
        """A Tune trial asks for its measurement and waits for the outcome."""
        if self._shut.is_set():
            return Outcome.CANCELLED
        future = self._outcomes.setdefault((trial_id, attempt), asyncio.get_running_loop().create_future())
        self._requests.put_nowait((trial_id, attempt))
        return await future

    async def next_request(self, timeout_s: float) -> tuple[str, int] | None:
        """The next trial somebody waits for, or None after `timeout_s`."""
        try:
            return await asyncio.wait_for(self._requests.get(), timeout_s)
        except TimeoutError:
            return None

    async def resolve(self, trial_id: str, attempt: int, outcome: str) -> None:
        """Tell the Tune trial how it ended."""
        future = self._outcomes.pop((trial_id, attempt), None)
        if future is not None and not future.done():
            future.set_result(outcome)

    async def post(self, state: LiveState) -> None:
        """Keep how far the sweep is, for whoever asks the cluster."""
        self._state = state

    async def state(self) -> LiveState | None:
        """How far the sweep is; None while it starts."""
        return self._state

    async def until_shut(self) -> None:
        """Wait for the sweep's end."""
        await self._shut.wait()

    async def shut(self) -> None:
        """End every wait: Tune trials get `cancelled`, sessions the reports in hand."""
        self._shut.set()
        self._requests.put_nowait(None)
        for future in self._outcomes.values():
            if not future.done():
                future.set_result(Outcome.CANCELLED)
        await self._notify()

    async def _notify(self) -> None:
        """Let every wait look again."""
        async with self._changed:
            self._changed.notify_all()

    async def _until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Whether the condition came true before the timeout or the hub's end."""
        try:
            async with self._changed:
                await asyncio.wait_for(
                    self._changed.wait_for(lambda: condition() or self._shut.is_set()), max(timeout_s, 0.0)
                )
        except TimeoutError:
            return False
        return condition()


class HubChannel:
    """A rank's `Channel` over the hub."""

    def __init__(self, hub: Any, session_id: str, rank: int) -> None:
        """Speak for one rank of one session."""
        self._hub, self._session_id, self._rank = hub, session_id, rank

    def take(self) -> Order | None:
        """Wait for the next order; None ends the session."""
        order: Order | None = ray.get(self._hub.take.remote(self._session_id, self._rank))
        return order

    def finish(self, order: Order, report: RankReport) -> None:
        """Hand over what this rank measured, by value, so that it outlives the rank."""
        ray.get(self._hub.finish.remote(self._session_id, order.trial_id, order.attempt, report))
