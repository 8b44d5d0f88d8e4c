"""Whether activations are recomputed: which layers of a model run forward again while backward is under way.

Works for any model that is not compiled, however it cuts itself into checkpointed parts. Caller: `workloads.vision`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from rtxscale.nccl.attest import Attested, Verdict


class Recomputation:
    """Watches a model's layers through one step, until it is stopped."""

    def __init__(self, model: nn.Module) -> None:
        """Begin to watch."""
        self._layers = [module for module in model.modules() if next(module.children(), None) is None]
        self._again: set[nn.Module] = set()
        self._in_backward = self._seen = False
        self._hooks = [layer.register_forward_pre_hook(self._note) for layer in self._layers]

    @contextmanager
    def backward(self) -> Iterator[None]:
        """Spans a backward pass: a layer that runs forward inside has been recomputed."""
        self._in_backward = True
        self._seen = self._seen or bool(self._hooks)
        try:
            yield
        finally:
            self._in_backward = False

    def stop(self) -> None:
        """Watch no further; may be called again."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def attest(self, requested: str) -> Attested:
        """The setting asked for against what the first step's backward ran again."""
        observed = None
        if self._seen:
            observed = f"on, {len(self._again)} of {len(self._layers)} layers" if self._again else "off"
        verdict = Verdict.NOT_ATTESTED
        if observed is not None:
            verdict = Verdict.HONOURED if bool(self._again) == (requested == "on") else Verdict.REFUTED
        return Attested(
            subject="workload.checkpointing",
            requested=requested,
            observed=observed,
            verdict=verdict,
            evidence="layers that ran forward during the first step's backward; not watched when compiled",
        )

    def _note(self, layer: nn.Module, _: Any) -> None:
        if self._in_backward:
            self._again.add(layer)
