"""A run as it may leave the machine: every text of its tables, manifest and sweep file redacted as it is read.

A `RedactedRun` is read like any other `Run`, so whatever shows a run shows a redacted one without knowing. Numbers,
ids and the words of settings stay as they are. The rules are in `redaction.redact`; callers are `cli` and `report`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from rtxscale.results.read import Run
from rtxscale.results.redaction.names_here import names_here
from rtxscale.results.redaction.private_names import Names, names_in, pseudonyms
from rtxscale.results.redaction.redact import Redactor
from rtxscale.results.redaction.secret_places import HOST_WORD, USER_WORD, word_for
from rtxscale.results.schema import TABLES
from rtxscale.spec.cell import canonical_json

ROLES = frozenset({"workers", "driver"})
"""What stands for a node where a fact holds for all workers, or for the machine that drives the sweep: no node's id,
and words that other texts are full of."""
IDS = frozenset({"trial_id", "cell_id", "sweep_id", "session_id", "environment_id"})
"""Hashes of ours: nobody's name is looked for in them."""
IDENTIFIERS = frozenset({"node", "uuid", "gpu_uuids", "node_names"})
LARGE = frozenset({"steps", "telemetry", "logs"})
"""Tables that may not fit into memory, and are redacted as they are read."""
SOFTWARE = ("software", "package")
VERSION = r"^[A-Za-z]?\d+(\.\d+)*([.+_-]?[0-9A-Za-z]+)*([.+-][0-9A-Za-z.+-]*)?$"
COMMIT = r"^[0-9a-f]{7,64}$"


@dataclass(frozen=True, kw_only=True)
class RedactedRun(Run):
    """A run whose texts are redacted; `run_dir` is still where it lies and is for reading only."""

    redactor: Redactor = field(default_factory=Redactor)
    kept: dict[str, pl.DataFrame] = field(init=False, default_factory=dict, compare=False, repr=False)
    """Redacted tables of moderate size: whoever shows a run asks for them again and again. `dataclasses.replace` never
    hands them on: they are those of these records."""

    def frame(self, name: str) -> pl.LazyFrame:
        """The committed rows of a table, every text redacted."""
        if name in LARGE:
            return redacted_frame(super().frame(name), name, self.redactor)
        if name not in self.kept:
            self.kept[name] = redacted_frame(super().frame(name), name, self.redactor).collect()
        return self.kept[name].lazy()


def redacted(run: Run, here: Names | None = None, texts: Iterable[str] = ()) -> RedactedRun:
    """The same run with every text redacted.

    `here` holds further names, by default those of this machine; names that `texts` give away are looked for as well.
    """
    names = names_of(run, texts) | (names_here() if here is None else here)
    redactor = Redactor(names=names)
    return RedactedRun(
        run_id=redactor.text(run.run_id),
        run_dir=run.run_dir,
        sweep_text=redactor.sweep(run.sweep_text),
        manifest=redactor.data(run.manifest),
        records=run.records,
        redactor=redactor,
    )


def names_of(run: Run, texts: Iterable[str] = ()) -> Names:
    """Names that the run itself gives away, and pseudonyms for its nodes and GPUs in their order in the environment."""
    environment = run.frame("environment").select("node", "subject", "name", "value").collect()
    telemetry = run.frame("telemetry").select(pl.col("node", "uuid").unique().implode()).collect()
    ranked = run.frame("trials").select(pl.col("gpu_uuids").explode().unique()).collect()["gpu_uuids"]
    placed = run.frame("trials").select(pl.col("node_names").explode().unique()).collect()["node_names"].drop_nulls()
    nodes = {*environment["node"].drop_nulls(), *_items(telemetry["node"]), *placed} - ROLES
    listed = environment.filter((pl.col("subject") == "gpu") & pl.col("name").str.ends_with("uuid"))
    gpus = [*listed["value"].drop_nulls(), *sorted({*_items(telemetry["uuid"]), *ranked.drop_nulls()})]
    found = names_in([*texts, run.sweep_text, json.dumps(run.manifest, ensure_ascii=False), *_texts(run)])
    packages = environment.filter(pl.col("subject") == "package")["name"].drop_nulls()
    return (
        found
        | named_in(environment)
        | Names(
            pseudonyms=pseudonyms(sorted(nodes), [gpu for gpu in gpus if gpu != "unknown"]),
            words=frozenset(packages.str.to_lowercase()),
        )
    )


def named_in(environment: pl.DataFrame) -> Names:
    """Hosts and users that rows of the environment name: they are looked for in every other text too."""
    users: set[str] = set()
    hosts: set[str] = set()
    for subject, name, value in environment.select("subject", "name", "value").drop_nulls().iter_rows():
        word = None if subject in SOFTWARE else word_for(name, value)
        if word in (HOST_WORD, USER_WORD):
            (hosts if word == HOST_WORD else users).add(value.strip())
    return Names(users=frozenset(users), hosts=frozenset(hosts))


def redacted_frame(frame: pl.LazyFrame, name: str, redactor: Redactor) -> pl.LazyFrame:
    """A table of `results.schema` with every text redacted; versions of software keep their dots."""
    columns = [column for column in TABLES[name] if column.kind in ("str", "strs")]
    changed = {column.name: _redacted(column.name, redactor) for column in columns}
    if name == "environment":
        changed["value"] = pl.when(_is_version()).then(_mapped("value", redactor.version)).otherwise(changed["value"])
        changed["value"] = (
            pl.struct("subject", "name", "value").map_batches(_by_name, pl.String).fill_null(changed["value"])
        )
    return frame.with_columns(**changed)


def _by_name(rows: pl.Series) -> pl.Series:
    """The word for each value that its row's name says is private; null for all others."""
    words = [None if row["subject"] in SOFTWARE else word_for(row["name"] or "", row["value"] or "") for row in rows]
    return pl.Series("value", words, dtype=pl.String)


def _redacted(column: str, redactor: Redactor) -> pl.Expr:
    if column in IDENTIFIERS:
        return _mapped(column, redactor.identifier)
    return _mapped(column, _text_or_json(redactor))


def _mapped(column: str, change: Callable[[str], str]) -> pl.Expr:
    """A column of texts, or of lists of them, with `change` made to each distinct text."""

    def whole(values: pl.Series) -> pl.Series:
        listed = isinstance(values.dtype, pl.List)
        mapping = _changes(values.explode() if listed else values, change)
        if not mapping:
            return values
        return values.list.eval(pl.element().replace(mapping)) if listed else values.replace(mapping)

    return pl.col(column).map_batches(whole, return_dtype=None, is_elementwise=True)


def _changes(values: pl.Series, change: Callable[[str], str]) -> dict[str, str]:
    """Old text -> new text of the distinct values that change."""
    pairs = ((text, change(text)) for text in values.unique().drop_nulls())
    return {old: new for old, new in pairs if new != old}


def _text_or_json(redactor: Redactor) -> Callable[[str], str]:
    """Redaction of JSON by its keys and values, where a name may be hidden in escapes; of what is none, as text."""

    def change(text: str) -> str:
        if not text.lstrip().startswith(("{", "[")):
            return redactor.text(text)
        try:
            data = json.loads(text, object_pairs_hook=_each_key_once)
            changed = redactor.data(data)
            return text if changed == data else canonical_json(changed)
        except (ValueError, RecursionError):
            return redactor.text(text)

    return change


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; one with a key twice holds what data would hide.

    Raises:
        ValueError: a key is there twice.
    """
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("found a key twice; expected each once")
    return found


def _is_version() -> pl.Expr:
    """Versions of four numbers look like addresses, and a commit like a secret."""
    software = pl.col("subject").is_in(SOFTWARE) | (pl.col("name") == "kernel")
    version = software & pl.col("value").str.contains(VERSION)
    return version | ((pl.col("name") == "torch commit") & pl.col("value").str.contains(COMMIT))


def _texts(run: Run) -> Iterator[str]:
    """Every distinct text of the tables in which a name may stand."""
    for name, columns in TABLES.items():
        texts = [column.name for column in columns if column.kind == "str" and column.name not in IDS]
        if not texts or name in ("steps", "buckets"):
            continue
        frame = run.frame(name).select(pl.col(texts).unique().implode()).collect()
        yield from (text for column in texts for text in _items(frame[column]) if re.search(r"\W", text))


def _items(column: pl.Series) -> list[str]:
    """The items of a column that holds one list."""
    return [] if column.is_empty() else sorted(column[0].drop_nulls())
