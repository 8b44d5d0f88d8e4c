"""Whether activations are recomputed: which layers of a model run forward again while backward is under way.

Works for any model, however it cuts itself into checkpointed parts. A compiled one has no layers to watch: there the
operators that a step calls are counted. Caller: `workloads.model_training`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from rtxscale.nccl.attest import Attested, Verdict

WATCHED_LAYERS = "layers that ran forward during the first step's backward"
WATCHED_CALLS = "attention and convolutions that a compiled step called forward, and again during its backward"


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

    def repeated(self) -> tuple[int, int] | None:
        """Layers that were recomputed, and all layers; None before a backward pass was watched."""
        return (len(self._again), len(self._layers)) if self._seen else None

    def _note(self, layer: nn.Module, _: Any) -> None:
        if self._in_backward:
            self._again.add(layer)


def attest_checkpointing(requested: str, layers: tuple[int, int] | None, calls: tuple[int, int] | None) -> Attested:
    """The setting asked for against the layers that ran again, or else the calls that a compiled step made again.

    `layers` are those of `Recomputation.repeated`, `calls` those of `operators.repeated_calls`. Calls may all lie
    outside the parts that are checkpointed: where none was made again, `on` is not refuted.
    """
    found, what = (calls, "calls") if layers is None else (layers, "layers")
    observed, verdict = None, Verdict.NOT_ATTESTED
    if found is not None and (found[0] or layers is not None or requested == "off"):
        again, of = found
        observed = f"on, {again} of {of} {what}" if again else "off"
        verdict = Verdict.HONOURED if (again > 0) == (requested == "on") else Verdict.REFUTED
    return Attested(
        subject="workload.checkpointing",
        requested=requested,
        observed=observed,
        verdict=verdict,
        evidence=WATCHED_LAYERS if layers is not None else WATCHED_CALLS,
    )
