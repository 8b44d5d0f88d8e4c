"""JSON of nccl-tests: what it writes since 2.17.3, and the shape that a fork has proposed.

Booleans are strings there, NaN is the string `nan`, and `env` is the writer's whole environment, which is not read.
Caller: `nccl.nccl_tests`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rtxscale.nccl.nccl_tests_rows import NcclTests, Row, Side, number, operation_of, version_text


def read_json(found: Mapping[str, Any]) -> NcclTests:
    """Read one JSON object.

    Raises:
        ValueError: it is none of nccl-tests, or is damaged.
    """
    try:
        if "results" in found:
            return _read_results(found)
        if "benchmark" in found:
            return _read_fork(found)
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(
            f"found JSON of nccl-tests with a field missing or of another type ({type(error).__name__}: {error}); "
            "expected it as nccl-tests writes it"
        ) from error
    raise ValueError(f"found JSON with the keys {', '.join(found)[:200]}; expected `results`, as nccl-tests writes it")


def json_object(text: str) -> dict[str, Any] | None:
    """The JSON object that the text is, or that begins one of its lines; None if there is none."""
    for match in re.finditer(r"^\{", text, flags=re.MULTILINE):
        try:
            found, _ = json.JSONDecoder().raw_decode(text, match.start())
        except ValueError as error:
            raise ValueError(f"found JSON that breaks off ({error}); expected the whole file of nccl-tests") from error
        if isinstance(found, dict):
            return found
    return None


def _read_results(found: Mapping[str, Any]) -> NcclTests:
    """The JSON that nccl-tests writes since 2.17.3: booleans are strings, NaN is the string `nan`."""
    config = found.get("config") or {}
    rows = tuple(_json_row(item) for item in found["results"])
    names = {item.get("experiment_name") for item in found["results"]}
    bounds, code = found.get("out_of_bounds") or {}, found.get("nccl_version")
    return NcclTests(
        rows=rows,
        nccl_version=version_text(code) if isinstance(code, int) else None,
        operation=operation_of(names.pop()) if len(names) == 1 else None,
        ranks=_ranks(config, found.get("args") or []),
        warmup_iterations=config.get("warmup_iters"),
        iterations=config.get("iterations") or next(iter(_iterations(found["results"])), None),
        out_of_bounds=_out_of_bounds(bounds),
        average_busbw_gb_s=number((found.get("average_bus_bandwidth") or {}).get("bandwidth")),
    )


def _json_row(item: Mapping[str, Any]) -> Row:
    return Row(
        size_bytes=int(item["size"]),
        count=int(item["count"]),
        dtype=item["type"],
        redop=item.get("redop"),
        root=int(str(item["root"]).strip()) if item.get("root") is not None else None,
        out_of_place=_json_side(item.get("out_of_place")),
        in_place=_json_side(item.get("in_place")),
    )


def _json_side(item: Mapping[str, Any] | None) -> Side | None:
    if item is None:
        return None
    return Side(
        time_us=number(item.get("time", item.get("cpu_time"))),
        algbw_gb_s=number(item.get("alg_bw")),
        busbw_gb_s=number(item.get("bus_bw")),
        wrong=number(item.get("nwrong")),
    )


def _out_of_bounds(item: Mapping[str, Any]) -> int | None:
    """Number of wrong values; at least 1 where the file only says that it is not okay."""
    count = item.get("count")
    if count is None:
        return {"true": 0, "false": 1}.get(str(item.get("okay")).lower())
    return int(count)


def _ranks(config: Mapping[str, Any], args: Sequence[str]) -> int | None:
    """Ranks by the configuration, else by the arguments; without either, and for several processes, not known."""
    if "ngpus" in config:
        processes = max(len(config.get("devices") or []), 1)  # one is listed of each process
        return processes * int(config["ngpus"]) * int(config.get("nthreads") or 1)
    given = [args[place + 1] for place, word in enumerate(args[:-1]) if word in ("-g", "--ngpus")]
    return int(given[-1]) if given and given[-1].isdigit() else None


def _iterations(results: Sequence[Mapping[str, Any]]) -> Iterator[int]:
    counts = {item.get("actual_iterations") for item in results} - {None}
    if len(counts) == 1:
        yield int(counts.pop() or 0)


def _read_fork(found: Mapping[str, Any]) -> NcclTests:
    """The JSON of the fork proposed in nccl-tests#318: rows keyed by their size, sides by a prefix."""
    rows = [_fork_row(int(size), item) for table in found["benchmark"] for size, item in table.items()]
    return NcclTests(rows=tuple(rows), nccl_version=found.get("version"))


def _fork_row(size_bytes: int, item: Mapping[str, Any]) -> Row:
    return Row(
        size_bytes=size_bytes,
        count=int(item["count"]),
        dtype=item["type"],
        redop=item.get("redop"),
        root=int(item["root"]),
        out_of_place=_fork_side(item, "oop"),
        in_place=_fork_side(item, "ip"),
    )


def _fork_side(item: Mapping[str, Any], prefix: str) -> Side:
    """One side; `error` is a number of wrong values, or N/A where nothing was checked."""
    return Side(
        time_us=number(item[f"{prefix}_time"]),
        algbw_gb_s=number(item[f"{prefix}_algbw"]),
        busbw_gb_s=number(item[f"{prefix}_busbw"]),
        wrong=number(item.get(f"{prefix}_error")),
    )
