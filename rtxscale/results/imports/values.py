"""Single values of a foreign table as our fields hold them: numbers, texts and settings, and words for the same thing.

Nothing is guessed: what is no number where one belongs is refused with its place. Called by `imports.run`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from rtxscale.errors import BadInput
from rtxscale.results.imports.trials import AUTO, SAMPLES
from rtxscale.results.outcomes import SIMULATED
from rtxscale.spec.mapping import is_field
from rtxscale.spec.script import UNIT, UNIT_WORDS
from rtxscale.spec.sweep import COMMUNICATION_AXES
from rtxscale.topology.null_words import null_reason

WHOLE = frozenset({"gpus", "batch_per_gpu", "global_batch"})
LARGEST = 10**18
TEXTS = frozenset(
    {
        *("trial", "visit", "repeat", "slot", "outcome", "message", "workload", "work_unit", "precision"),
        *("device", "device_name", "operation"),
    }
)
LONGEST, LONGEST_MESSAGE = 300, 2000
"""Characters of a text; a longer message is cut, as a log may stand there."""
PRECISIONS = {"float32": "fp32", "float": "fp32", "float16": "fp16", "half": "fp16", "bfloat16": "bf16"}
DEVICES = {"cpu": "cpu", "gpu": "cuda", "cuda": "cuda", SIMULATED: SIMULATED}
"""Their word for what workers run on -> ours; any other names the card."""
RATE = re.compile(r"(/| per |_per_)s(ec(ond)?)?$")


def value_of(name: str, raw: Any, where: str) -> Any:
    """One value as our field holds it, null where there is none; `where` says in messages where it stands.

    Raises:
        BadInput: it is no number where one belongs, no word for a unit of work, or too long.
    """
    if raw is None or (isinstance(raw, str) and null_reason(raw) is not None):
        return None
    if name == "message":
        return str(raw)[:LONGEST_MESSAGE]
    if len(str(raw)) > LONGEST:
        raise BadInput(f"{where}: found {len(str(raw)):,} characters; expected at most {LONGEST}")
    if name == "work_unit" and re.fullmatch(UNIT, _unit(str(raw))) is None:
        raise BadInput(f"{where}: found {seen(raw)}; expected one unit of work, such as image or token: {UNIT_WORDS}")
    if name in TEXTS:
        return str(raw)
    if not is_field(name) or "." in name:
        return _setting(name, raw)
    return _count(raw, where) if name in WHOLE else _rate(raw, where)


def _rate(raw: Any, where: str) -> float:
    number = _number(raw)
    if number is None:
        point = ", with a point and without marks between thousands" if "," in str(raw) else ""
        raise BadInput(f"{where}: found {seen(raw)}; expected a number{point}")
    return number


def _count(raw: Any, where: str) -> int:
    number = _rate(raw, where)
    if not number.is_integer() or not 1 <= number <= LARGEST:
        raise BadInput(f"{where}: found {seen(raw)}; expected a whole number of at least 1 and at most 18 digits")
    return int(number)


def seen(raw: Any) -> str:
    """A value as messages show it, a long one cut."""
    text = repr(raw)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _number(raw: Any) -> float | None:
    try:
        return None if isinstance(raw, bool) else float(raw)
    except (TypeError, ValueError, OverflowError):
        return None


def _setting(path: str, raw: Any) -> Any:
    """The value of a setting: a number where the text is one; of the communication in our words, all of small letters.

    >>> _setting("nccl.algorithm", "Ring"), _setting("nccl.channels", "8"), _setting("nccl.p2p", "Default")
    ('ring', 8, 'auto')
    """
    number = _number(raw)
    if number is not None and math.isfinite(number):
        return int(number) if number.is_integer() else number
    if isinstance(raw, str) and path.startswith(COMMUNICATION_AXES):
        word = raw.strip().casefold()
        return AUTO if word == "default" else word
    return raw


def in_our_words(row: Mapping[str, Any]) -> dict[str, Any]:
    """Unit of work, precision and device of a row as tables of ours call them."""
    unit, precision, device = (row.get(name) for name in ("work_unit", "precision", "device"))
    if unit is None and row.get("throughput_per_s") is not None:
        unit = folded(str(row["throughput column"]))
        unit = unit if _unit(unit) in (*SAMPLES, "token") else None
    found = {"work_unit": unit and _unit(unit), "precision": precision}
    if precision is not None:
        found["precision"] = PRECISIONS.get(precision.casefold(), precision.casefold())
    if device is not None:
        found["device"] = DEVICES.get(device.casefold().partition(":")[0])
        found |= {"device_name": row.get("device_name") or device} if found["device"] is None else {}
    return found


def _unit(text: str) -> str:
    """One unit of work, from the words for several or for a rate of them.

    >>> _unit("Images/s"), _unit("tokens_per_s"), _unit("batch"), _unit("samples per second")
    ('image', 'token', 'batch', 'sample')
    """
    word = RATE.sub("", text.strip().casefold()).strip()
    return word if word.endswith("ss") or len(word) < 3 else word.removesuffix("s")


def folded(name: str) -> str:
    """A column's name as it is compared.

    >>> folded("Images/s"), folded("global batch")
    ('images_per_s', 'global_batch')
    """
    return "_".join(name.casefold().replace("/", "_per_").replace("-", "_").split())
