"""PCIe generation and width judged from samples under load: an idle link slows down on purpose, which is no fault.

Each GPU is held against what card and host can both do, or, where that is unknown, against the best that it or its
peers reached. Only decides; sampling is telemetry's. Callers: the doctor, the report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Below this utilisation a link may rest in a low generation. 50 % keeps idle and start-up samples out.
LOADED_PERCENT = 50.0


@dataclass(frozen=True, kw_only=True)
class PcieSample:
    """One reading of a GPU's link: generation, lanes, and the GPU's utilisation in percent; None where not readable."""

    gpu: str
    generation: int | None
    width: int | None
    utilisation_percent: float | None


@dataclass(frozen=True, kw_only=True)
class PcieLimit:
    """The most that card and slot can do: the lower of both generations, and lanes; None where unknown."""

    generation: int | None = None
    width: int | None = None


@dataclass(frozen=True, kw_only=True)
class PcieVerdict:
    """One GPU's link under load: `loaded` samples were judged, 0 of them means not judged.

    `below_generation` and `below_width` count the samples below what was expected; the lowest values stand beside them.
    """

    gpu: str
    loaded: int
    expected: PcieLimit
    lowest: PcieLimit
    below_generation: int
    below_width: int

    @property
    def slow(self) -> bool | None:
        """Whether the link was below what was expected in any sample; None where nothing was measured under load."""
        if not self.loaded or self.lowest == PcieLimit():
            return None
        return bool(self.below_generation or self.below_width)


def lower_of(card: int | None, host: int | None) -> int | None:
    """The generation that both ends can do, from what is known of them.

    >>> lower_of(4, 5), lower_of(5, None)
    (4, 5)
    """
    return min((value for value in (card, host) if value is not None), default=None)


def judge_pcie(samples: Sequence[PcieSample], limits: Mapping[str, PcieLimit] | None = None) -> tuple[PcieVerdict, ...]:
    """A verdict for each GPU of the samples, in order of appearance."""
    limits = limits or {}
    loaded = [sample for sample in samples if (sample.utilisation_percent or 0.0) >= LOADED_PERCENT]
    best = PcieLimit(
        generation=max((one.generation for one in loaded if one.generation is not None), default=None),
        width=max((one.width for one in loaded if one.width is not None), default=None),
    )
    verdicts: list[PcieVerdict] = []
    for gpu in dict.fromkeys(sample.gpu for sample in samples):
        own = [sample for sample in loaded if sample.gpu == gpu]
        limit = limits.get(gpu, PcieLimit())
        verdicts.append(
            _verdict(
                gpu,
                own,
                PcieLimit(
                    generation=best.generation if limit.generation is None else limit.generation,
                    width=best.width if limit.width is None else limit.width,
                ),
            )
        )
    return tuple(verdicts)


def _verdict(gpu: str, own: Sequence[PcieSample], expected: PcieLimit) -> PcieVerdict:
    generations = [sample.generation for sample in own if sample.generation is not None]
    widths = [sample.width for sample in own if sample.width is not None]
    return PcieVerdict(
        gpu=gpu,
        loaded=len(own),
        expected=expected,
        lowest=PcieLimit(generation=min(generations, default=None), width=min(widths, default=None)),
        below_generation=sum(value < (expected.generation or 0) for value in generations),
        below_width=sum(value < (expected.width or 0) for value in widths),
    )
