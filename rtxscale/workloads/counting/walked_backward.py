"""A backward pass that walks autograd's graph from Python, node by node, as PyTorch's own engine does.

The engine needs a driver for tensors of a GPU, fake ones too; their nodes do not. Later nodes go first, and what a node
has saved is let go once it has run, so that tensors live as long as they do in a real pass. Hooks on tensors are not
called. Caller: `counting.footprint`.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction

Gradients = dict[int, torch.Tensor]
"""Gradients of a node's outputs, by their place; those that nothing depends on are missing."""


@dataclass(kw_only=True)
class _Walk:
    """Nodes that wait for gradients, and those that have them all."""

    waits: Counter[Any]
    got: dict[Any, Gradients] = field(default_factory=dict)
    ready: list[tuple[float, int, Any]] = field(default_factory=list)
    order: Any = field(default_factory=count)

    def push(self, node: Any) -> None:
        """Parameters' gradients are taken at once, else the node made last goes first."""
        place = -float("inf") if hasattr(node, "variable") else -float(node._sequence_nr())
        heapq.heappush(self.ready, (place, next(self.order), node))

    def give(self, node: Any, place: int, gradient: torch.Tensor | None) -> None:
        """One of a node's gradients has come, if only to say that there is none."""
        if gradient is not None:
            described = node._input_metadata[place]
            if gradient.shape != described.shape:
                gradient = gradient.sum_to_size(described.shape)
            gradient = gradient.to(described.dtype)
            got = self.got.setdefault(node, {})
            got[place] = got[place] + gradient if place in got else gradient
        self.waits[node] -= 1
        if not self.waits[node]:
            del self.waits[node]
            self.got.setdefault(node, {})
            self.push(node)


def walk_backward(losses: list[torch.Tensor], keep: Callable[[torch.Tensor], None] = lambda _: None) -> None:
    """Add the loss's gradients to those of the parameters; `keep` is told of each parameter's first.

    `losses` holds the loss alone, which is taken out: a loss that is held on to would hold the graph.
    """
    loss = losses.pop()
    walk = _Walk(waits=_dependencies(loss.grad_fn))
    walk.got[loss.grad_fn] = {0: torch.ones_like(loss)}
    walk.push(loss.grad_fn)
    del loss
    with torch.no_grad():
        while walk.ready:
            _step(walk, keep)


def _dependencies(root: Any) -> Counter[Any]:
    """How many gradients each node below the root will be given."""
    waits: Counter[Any] = Counter()
    stack = [root]
    while stack:
        for child, _ in stack.pop().next_functions:
            if child is not None:
                if child not in waits:
                    stack.append(child)
                waits[child] += 1
    return waits


def _step(walk: _Walk, keep: Callable[[torch.Tensor], None]) -> None:
    """Run the next node; no name may outlive it, or it would hold what the node has saved."""
    node = heapq.heappop(walk.ready)[2]
    got = walk.got.pop(node)
    if hasattr(node, "variable"):
        _accumulate(node.variable, got, keep)
        return
    children = node.next_functions
    gradients = _run(node, got) if got else [None] * len(children)
    del node, got
    for position, (child, place) in enumerate(children):
        gradient, gradients[position] = gradients[position], None
        if child is not None:
            walk.give(child, place, gradient)


def _run(node: Any, got: Gradients) -> list[torch.Tensor | None]:
    """Gradients of the node's inputs."""
    described = node._input_metadata
    given: list[torch.Tensor | None] = [got.pop(place, None) for place in range(len(described))]
    if not isinstance(node, BackwardCFunction):
        made = node(*given)
    else:  # a function written in Python expects zeros where there is nothing
        for place, one in enumerate(described):
            if given[place] is None:
                given[place] = torch.zeros(one.shape, dtype=one.dtype, device=one.device)
        made = node.apply(*given)  # type: ignore[no-untyped-call]  # untyped in torch
    return list(made) if isinstance(made, tuple) else [made]


def _accumulate(parameter: torch.Tensor, got: Gradients, keep: Callable[[torch.Tensor], None]) -> None:
    if not got:
        return
    gradient = got.pop(0)
    if parameter.grad is None:
        parameter.grad = gradient.detach()
        keep(parameter.grad)
    else:
        parameter.grad.add_(gradient)
