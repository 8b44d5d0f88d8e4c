"""Whatever a file to import holds, it becomes tables of ours or one refusal in words, never another exception."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtxscale.cli.import_results import read_import
from rtxscale.errors import BadInput
from rtxscale.results.schema import arrow_schema
from rtxscale.spec.mapping import ImportMapping, parse_mapping

CSV = (
    "gpus,images_per_s,batch_per_gpu,nccl.algorithm,outcome\n1,100.5,64,auto,ok\n2,190,64,ring,ok\n2,,64,tree,crashed\n"
)
NCCL = """\
# nThread 1 nGpus 2 minBytes 1048576 maxBytes 2097152 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    45.67   22.96   22.96      0    44.12   23.77   23.77      0
     2097152        524288     float     sum      -1    60.01   34.95   34.95      0    59.90   35.01   35.01      0
# Avg bus bandwidth    : 29.1725
"""
NCCL_JSON = (Path(__file__).parents[1] / "golden" / "nccl_tests" / "v2_17_json_report.json").read_text()
MAPPING = "rows: sessions\ncolumns: {throughput_per_s: images_per_s}\nconstants: {workload.kind: vision, gpus: 2}\n"
PIECES = [
    *",;\t\n\r\"'{}[]:#-+.eE",
    "nan",
    "inf",
    "-1",
    "0",
    "1e999",
    "99999999999999999999",
    "null",
    "\x00",
    "\ufeff",
    "é",
]
NAMES = st.sampled_from(["gpus", "throughput_per_s", "batch_per_gpu", "nccl.algorithm", "outcome", "x", "", "session"])
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.lists(st.integers(), max_size=2)
)


@st.composite
def broken(draw, texts):
    text = draw(st.sampled_from(texts))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        text = text[:start] + draw(st.sampled_from(PIECES)) + text[end:]
    return text


def refusal_of(read):
    """What was read and the words of a refusal, one of them None."""
    try:
        return read(), None
    except BadInput as refusal:
        return None, str(refusal)


def check(text):
    imported, refusal = refusal_of(lambda: read_import(text, "given.csv", ImportMapping(), "imported: given.csv"))
    if imported is None:
        assert refusal.startswith("given.csv")
        return
    for name, rows in imported.tables.items():
        assert rows.schema.equals(arrow_schema(name))
    json.dumps({path: list(values) for path, values in imported.axes.items()})


@settings(max_examples=150)
@given(broken((CSV, NCCL, NCCL_JSON)))
def test_a_damaged_file_is_imported_or_refused(text):
    check(text)


@settings(max_examples=100)
@given(st.lists(st.dictionaries(NAMES, VALUES, max_size=6), max_size=4))
def test_any_json_rows_are_imported_or_refused(rows):
    check(json.dumps(rows))


@settings(max_examples=50)
@given(st.text(max_size=200))
def test_any_text_is_imported_or_refused(text):
    check(text)


@settings(max_examples=50)
@given(broken((MAPPING,)))
def test_a_damaged_mapping_is_read_or_refused(text):
    read, refusal = refusal_of(lambda: parse_mapping(text, "map.yaml"))
    assert read is not None or refusal.startswith("map.yaml")


@settings(max_examples=100)
@given(st.data())
def test_a_report_without_one_of_its_fields_is_imported_or_refused(data):
    report = json.loads(NCCL_JSON)
    at = report
    while isinstance(at, dict | list) and at:
        key = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        if not isinstance(at[key], dict | list) or not data.draw(st.integers(0, 3)):
            at[key] = data.draw(VALUES)
            break
        at = at[key]
    check(json.dumps(report))


def test_a_batch_too_large_to_be_counted_is_refused():
    with pytest.raises(BadInput, match=r"given\.csv: found a number too large"):
        read_import(
            json.dumps([{"gpus": 3037000500, "batch_per_gpu": 3037000500, "throughput_per_s": 1.0}]),
            "given.csv",
            ImportMapping(),
            "imported: given.csv",
        )
