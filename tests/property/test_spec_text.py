"""Whatever a sweep file holds, it is a sweep or a list of problems with lines, never another exception."""

import yaml
from hypothesis import given
from hypothesis import strategies as st

from rtxscale.errors import SpecError
from rtxscale.spec.load import parse_sweep

GOOD = """\
name: small
question: Does it scale?
study: both
workload: {kind: vision, batch_per_gpu: 8, global_batch: 16}
collectives: {sizes_mib: [1, 64]}
axes:
  gpus: [1, 2]
  nccl.channels: [auto, 2]
  ddp.bucket_mib: [1, 25]
zip: [[nccl.channels, ddp.bucket_mib]]
exclude: [{gpus: 2, nccl.channels: 2}]
visits: 2
"""
TOKENS = [
    *"{}[]:,-#&*!|>'\"%@`?\t\n ",
    "~",
    "null",
    "yes",
    "1e3",
    "0x1F",
    "1:30",
    ".nan",
    "2024-01-01",
    "<<",
    "é",
    "\x85",
]


@st.composite
def broken(draw):
    text = GOOD
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        text = text[:start] + draw(st.sampled_from(TOKENS)) + text[end:]
    return text


def problems(text):
    try:
        parse_sweep(text, "sweep.yaml")
    except SpecError as error:
        return error.problems or ["a refusal without a problem"]
    return []


def check(text):
    lines = text.count("\n") + text.count("\r") + text.count("\x85") + 2
    for problem in problems(text):
        assert problem.found
        assert problem.expected
        assert problem.line is None or 1 <= problem.line <= lines
        assert len(str(problem).splitlines()) == 1


@given(broken())
def test_a_damaged_sweep_is_refused_or_read(text):
    check(text)


@given(st.text(max_size=60))
def test_any_text_is_refused_or_read(text):
    check(text)


NAMES = ["gpus", "nccl.channels", "workload.kind", "nccl", "study", "zip", "kind", "batch_per_gpu", "sizes_mib", "<<"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
KEYS = ["name", "question", "study", "workload", "collectives", "axes", "zip", "exclude", "visits", "nccl", "hardware"]


@given(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6))
def test_any_value_under_any_key_is_a_problem_or_fine(data):
    check(yaml.safe_dump(data, allow_unicode=True))
