"""What a value of the sweep file is called in messages: what was found, and what its field expects.

Both are derived: `expected` from the field's type and limits, `found` from the value and its text in the file. No
wording of pydantic reaches the user. Called by `spec.fields`, `spec.checks` and `spec.load`.
"""

from __future__ import annotations

import datetime
import math
import re
import types
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from rtxscale.spec.document import Mark, shorten
from rtxscale.spec.section import Section

SCIENTIFIC = re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+")
LEADING_ZERO = re.compile(r"[-+]?0[0-9]")
NUMBER_LIKE = re.compile(r"[-+]?[0-9][0-9._]*(?:[eE][-+]?[0-9]+)?")
LIMITS = {
    "gt": "greater than",
    "ge": "of at least",
    "lt": "less than",
    "le": "of at most",
    "multiple_of": "a multiple of",
}
"""What pydantic's limits of a number are called."""
BOOLEAN_WORDS = ("true", "false")


def expected_value(annotation: Any, field: FieldInfo | None = None) -> str:
    """What a field of this type holds, in words.

    >>> from rtxscale.spec.section import PositiveInt
    >>> expected_value(Literal["auto"] | PositiveInt)
    'auto, or a whole number 1 to 1000000000'
    >>> expected_value(Literal["ray", "torchrun"]), expected_value(bool)
    ('ray or torchrun', 'true or false')
    """
    constraints = [] if field is None else list(field.metadata)
    description = None if field is None else field.description
    return _phrase(annotation, constraints, description)


def _phrase(annotation: Any, constraints: list[Any], description: str | None) -> str:
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *extra = get_args(annotation)
        return _phrase(inner, [*constraints, *_constraints(extra)], description)
    if origin is Literal:
        return alternatives([str(choice) for choice in get_args(annotation)])
    if origin in (Union, types.UnionType):
        return _union(get_args(annotation))
    if origin is tuple:
        listed = "a list, not empty," if _limit(constraints, "min_length") else "a list"
        return f"{listed} of items that are each {_phrase(get_args(annotation)[0], [], None)}"
    return _plain_phrase(annotation, constraints, description)


def _plain_phrase(annotation: Any, constraints: list[Any], description: str | None) -> str:
    if annotation is bool:
        return "true or false"
    if annotation is int:
        return f"a whole number {_range(constraints)}".strip()
    if annotation is float:
        return f"a number {_range(constraints)}".strip()
    if annotation is str:
        return _text(constraints, description)
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return f"a mapping with any of: {', '.join(annotation.model_fields)}"
    return "a value"


def _union(members: tuple[Any, ...]) -> str:
    members = tuple(member for member in members if member is not types.NoneType)
    if all(isinstance(member, type) and issubclass(member, Section) for member in members) and len(members) > 1:
        kinds = [str(get_args(member.model_fields["kind"].annotation)[0]) for member in members]
        return f"a mapping with kind: {alternatives(kinds)}"
    if set(members) == {bool, int, float, str}:
        return "text, a number, true or false"
    return ", or ".join(_phrase(member, [], None) for member in members)


def _text(constraints: list[Any], description: str | None) -> str:
    if _limit(constraints, "pattern") and description:
        return f"text: {description.rstrip('.')}"
    most = _limit(constraints, "max_length")
    if most is not None:
        return f"text of {_limit(constraints, 'min_length') or 0} to {most} characters"
    return "text"


def _range(constraints: list[Any]) -> str:
    limits = {name: value for name in LIMITS if (value := _limit(constraints, name)) is not None}
    if limits.keys() >= {"ge", "le"}:
        return f"{limits['ge']:g} to {limits['le']:.10g}"
    return " and ".join(f"{LIMITS[name]} {value:.10g}" for name, value in limits.items())


def _constraints(extra: list[Any]) -> list[Any]:
    return [part for item in extra for part in (item.metadata if isinstance(item, FieldInfo) else [item])]


def _limit(constraints: list[Any], name: str) -> Any:
    values = (getattr(constraint, name, None) for constraint in constraints)
    return next((value for value in values if value is not None), None)


def found_value(value: Any, mark: Mark | None) -> str:
    """What stands in the file, with YAML's reading of it where that may surprise."""
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    if mark is None or mark.source == "":
        return "nothing"
    source = shorten(mark.source)
    reading = _reading(value, mark) if mark.plain else ""
    return f"{source} (YAML reads it as {reading})" if reading else source


def _reading(value: Any, mark: Mark) -> str:
    source = mark.source
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "" if source in BOOLEAN_WORDS else str(value).lower()
    if isinstance(value, str):
        return "text" if NUMBER_LIKE.fullmatch(source) else ""
    if isinstance(value, datetime.date):
        return "a date"
    if isinstance(value, float) and not math.isfinite(value):
        return "not a finite number"
    return "" if isinstance(value, float) or source == str(value) else str(value)


def hint(value: Any, mark: Mark | None, expected: str) -> str:
    """How to write the value so that YAML reads what is meant, or an empty string."""
    if mark is None or not isinstance(value, str | bool):
        return ""
    if isinstance(value, bool):
        return f'; for text write "{mark.source}" in quotes' if mark.plain and expected.startswith("text") else ""
    if "number" not in expected or not NUMBER_LIKE.fullmatch(value):
        return ""
    if not mark.plain:
        return "; without quotes"
    if SCIENTIFIC.fullmatch(value) and math.isfinite(float(value)):
        return f"; written {_yaml_number(float(value), expected)}"
    return "; without leading zeros" if LEADING_ZERO.match(value) else ""


def _yaml_number(value: float, expected: str) -> str:
    if value.is_integer() and abs(value) < 1e15:
        return str(int(value)) if "whole" in expected else f"{value:.1f}"
    mantissa, _, exponent = f"{value:e}".partition("e")
    return f"{float(mantissa)}e{int(exponent):+d}"


def alternatives(words: list[str]) -> str:
    """Words as a list that ends in `or`.

    >>> alternatives(["auto", "ring", "tree"])
    'auto, ring or tree'
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def nearest(word: str, valid: list[str]) -> str | None:
    """The valid name closest to a misspelt one, whole or by its last part; None when nothing is close.

    >>> nearest("nccl.chanels", ["nccl.channels", "gpus"]), nearest("bucket_mib", ["gpus", "ddp.bucket_mib"])
    ('nccl.channels', 'ddp.bucket_mib')
    """
    lowered = {name.lower(): name for name in reversed(valid)}
    tails = {name.rpartition(".")[2].lower(): name for name in reversed(valid)}
    for names, cutoff in ((lowered, 0.75), (tails, 0.75), (lowered, 0.6)):
        close = get_close_matches(word.lower(), list(names), n=1, cutoff=cutoff)
        if close:
            return names[close[0]]
    return None
