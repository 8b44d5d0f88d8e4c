"""Lines of NCCL log text: who said what, whatever stands in front of it.

Copes with host names of any kind, MPI, Ray and container prefixes, ANSI colours, time stamps, lines cut off or glued
together. Not the meaning of a message (that is `nccl.log`). `condense` keeps evidence small enough to store.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_REPEATED = re.compile(r"\s*\[repeated \d+x across cluster\].*$")
_LEVEL = re.compile(r" NCCL (INFO|WARN) ")
_HEAD = re.compile(r"(?:([\w.\-]+:\d+:\d+) )?\[(-?\d+)\](?: [\w./\-]+:\d+)?$", re.ASCII)
_HEAD_LENGTH = 300
_SPEAKER = re.compile(r"(?<![\w.\-])[\w.\-]{1,255}:\d+:\d+ \[-?\d+\]", re.ASCII)
_LAUNCHER = re.compile(r"^(?:\([^()]*\bpid=[^()]*\) ?|\[\d+,\d+\]<\w+>: ?|\d+: | *\|[^|]*\| *)+")
_NOISE: tuple[tuple[re.Pattern[str], str], ...] = (
    (_ANSI, ""),
    (_REPEATED, " [repeated across cluster]"),
    (_LAUNCHER, ""),
    (re.compile(r"\[?\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,\d]*Z?\]? ?"), ""),
    (re.compile(r"(?<![\w.\-])[\w.\-]{1,255}:\d+:\d+ (?=\[-?\d+\])"), ""),
    (re.compile(r"\b0x[0-9a-f]+"), "0x*"),
    (re.compile(r"(?<=:)(?:\d{1,3}\.){3}\d{1,3}(?=<)|(?<=:)[0-9a-f:]{2,45}(?:%\w{1,16})?(?=<\d)"), "address"),
    (re.compile(r"\bto fd \d+"), "to fd *"),
    (re.compile(r"\bCPU core \d+"), "CPU core *"),
    (re.compile(r"\b(time|total|create|send|recv|ring|delay) \d+\.\d{3,}"), r"\1 *"),
)


class Line(NamedTuple):
    """One line that NCCL wrote. `speaker` is `host:pid:tid`, or empty where the log does not say."""

    level: str
    speaker: str
    message: str


def whole_lines(text: str) -> tuple[list[str], bool]:
    """Lines of the text, and whether a last one without its newline was left out: it may be cut anywhere."""
    *lines, rest = text.split("\n")
    return lines, bool(rest)


def parse_line(raw: str) -> Line | None:
    """The message of one line, or None if NCCL did not write it or two lines ran into each other.

    >>> parse_line("2: node-0:309:310 [0] NCCL INFO Connected all trees")
    Line(level='INFO', speaker='node-0:309:310', message='Connected all trees')
    """
    text = plain(raw)
    mark = _LEVEL.search(text)
    if mark is None or _LEVEL.search(text, mark.end()):
        return None
    head = _HEAD.search(text[max(0, mark.start() - _HEAD_LENGTH) : mark.start()])
    if head is None:
        return None
    return Line(mark[1], head[1] or "", text[mark.end() :])


def bare_text(raw: str) -> str:
    """A line without colours and launcher prefixes, for the few that NCCL writes without its own.

    >>> bare_text("(train_fn pid=26572) NCCL version 2.20.5+cuda12.4")
    'NCCL version 2.20.5+cuda12.4'
    """
    return _LAUNCHER.sub("", plain(raw))


def plain(raw: str) -> str:
    """A line without ANSI colours, Ray's repeat mark and trailing white space."""
    text = _ANSI.sub("", raw) if "\x1b" in raw else raw
    if "[repeated " in text:
        text = _REPEATED.sub("", text)
    return text.rstrip()


def is_lossy(raw: str) -> bool:
    """Whether the line shows that others are missing: Ray folded repeats, or lines ran into each other."""
    if "[repeated " in raw and _REPEATED.search(raw):
        return True
    levels = list(_LEVEL.finditer(raw))
    if len(levels) != 1:
        return len(levels) > 1
    # A line cut in its head leaves its speaker in front of the next one's, or its level without a speaker.
    return parse_line(raw) is None or len(_SPEAKER.findall(raw, 0, levels[0].start())) > 1


def condense(text: str) -> list[tuple[str, int]]:
    r"""Distinct lines in order of first appearance, each with its count.

    Host names, addresses, process ids, pointers, time stamps and the like are blanked, so that lines that say the same
    are the same and the result can be published.

    >>> condense("a:1:2 [0] NCCL INFO comm 0x5f rank 0\na:3:4 [0] NCCL INFO comm 0x6f rank 0\n")
    [('[0] NCCL INFO comm 0x* rank 0', 2)]
    """
    raw_counts: dict[str, int] = {}
    for raw in text.split("\n"):
        raw_counts[raw] = raw_counts.get(raw, 0) + 1
    counts: dict[str, int] = {}
    for raw, count in raw_counts.items():
        line = _without_noise(raw)
        if line:
            counts[line] = counts.get(line, 0) + count
    return list(counts.items())


def _without_noise(raw: str) -> str:
    line = raw
    for pattern, replacement in _NOISE:
        line = pattern.sub(replacement, line)
    return line.rstrip()
