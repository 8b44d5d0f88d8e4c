"""What a piece of NCCL log says NCCL did: choices per message, channels, transports, settings taken and refused.

Understands NCCL 2.18 to 2.31 at `NCCL_DEBUG=INFO` (shapes read in NVIDIA/nccl at its tags, and in real logs). A line in
an unknown shape says nothing, it never raises. Judging the facts is `nccl.attest`; reading lines is `nccl.lines`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from rtxscale.nccl.knobs import Version
from rtxscale.nccl.lines import bare_text, is_lossy, parse_line, whole_lines

FIRST_LOGGED: Version = (2, 20, 0)
"""Before v2.20.3 NCCL does not log its choice for a message."""

# The order of NCCL_ALGO_* and NCCL_PROTO_* in src/include/nccl_common.h, logged as numbers before v2.24.3.
ALGORITHMS = ("tree", "ring", "collnetdirect", "collnetchain", "nvls", "nvlstree", "pat")
PROTOCOLS = ("ll", "ll128", "simple")


@dataclass(frozen=True, kw_only=True)
class Selection:
    """NCCL's choice for messages of one size; `count` messages had it.

    `function` is `all_reduce` and so on, None before v2.23.4, which does not log it. `first_channel` and
    `last_channel` are None before v2.24.3. Kernels on symmetric memory and copy engines have an algorithm of that name.
    """

    function: str | None
    size_bytes: int
    algorithm: str
    protocol: str
    first_channel: int | None = None
    last_channel: int | None = None
    count: int = 1

    @property
    def channels(self) -> int | None:
        """Channels up to and including the last one used; messages of one group share them side by side."""
        return None if self.last_channel is None else self.last_channel + 1


@dataclass(frozen=True, kw_only=True)
class Communicator:
    """One rank's end of a communicator; `channels` is what it can use for collectives, None if the log does not say."""

    created_by: str
    rank: int
    ranks: int
    channels: int | None
    complete: bool


@dataclass(frozen=True, kw_only=True)
class LogFacts:
    """Everything read from a log; empty where it says nothing."""

    versions: tuple[Version, ...] = ()
    selections: tuple[Selection, ...] = ()
    communicators: tuple[Communicator, ...] = ()
    channels: tuple[int, ...] = ()
    """Distinct numbers of channels for collectives that communicators were given."""
    transports: Mapping[str, int] = field(default_factory=dict)
    """Connections by transport, such as `P2P/CUMEM`, `SHM/direct`, `NET/Socket`."""
    environment: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Variables NCCL says it took from the environment, with every distinct value."""
    config: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Settings NCCL says it took from a communicator's config, such as `Min CTAs`."""
    refused: tuple[str, ...] = ()
    """Settings that NCCL changed, capped or did not understand, in its own words."""
    warnings: tuple[str, ...] = ()
    rings_connected: bool = False
    trees_connected: bool = False
    lossy: bool = False
    """Lines are known to be missing or cut short, so what is not seen proves nothing."""
    cut: bool = False
    """The last line had no newline and was left out."""
    lines: int = 0
    """Lines that NCCL wrote."""

    @property
    def version(self) -> Version | None:
        """The version, None if the log names none or several."""
        return self.versions[0] if len(self.versions) == 1 else None

    @property
    def selections_logged(self) -> bool | None:
        """Whether this version logs its choice per message; None if the version is not known."""
        return None if self.version is None else self.version >= FIRST_LOGGED


def parse_log(text: str) -> LogFacts:
    r"""Facts of a log of one or several ranks; lines of other programs are passed over.

    >>> parse_log("a:1:2 [0] NCCL INFO NCCL_ALGO set by environment to Ring\n").environment
    {'NCCL_ALGO': ('Ring',)}
    """
    reader = _Reader()
    lines, cut = whole_lines(text)
    for raw in lines:
        if "NCCL" in raw or "[repeated " in raw:
            reader.read(raw)
    return reader.facts(cut)


@dataclass(kw_only=True)
class _Open:
    """A communicator while the log is being read."""

    created_by: str
    address: str
    rank: int
    ranks: int
    channels: int | None = None
    complete: bool = False


class _Reader:
    """Collects facts line by line; each distinct line is taken apart once."""

    def __init__(self) -> None:
        self.versions: set[Version] = set()
        self.selections: Counter[Selection] = Counter()
        self.communicators: dict[str, list[_Open]] = {}
        self.channels: set[int] = set()
        self.transports: Counter[str] = Counter()
        self.environment: dict[str, list[str]] = {}
        self.config: dict[str, list[str]] = {}
        self.refused: list[str] = []
        self.warnings: list[str] = []
        self.connected: set[str] = set()
        self.lossy = False
        self.lines = 0
        self._known: dict[str, tuple[Callable[..., None], tuple[str | None, ...]] | None] = {}

    def read(self, raw: str) -> None:
        if raw not in self._known:
            self.lossy = self.lossy or is_lossy(raw)
            self._known[raw] = self._understand(raw)
        if (known := self._known[raw]) is not None:
            self.lines += 1
            action, arguments = known
            action(self, *arguments)

    def facts(self, cut: bool) -> LogFacts:
        return LogFacts(
            versions=tuple(sorted(self.versions)),
            selections=tuple(replace(selection, count=count) for selection, count in self.selections.items()),
            communicators=tuple(_closed(one) for group in self.communicators.values() for one in group),
            channels=tuple(sorted(self.channels)),
            transports=dict(self.transports),
            environment={name: tuple(values) for name, values in self.environment.items()},
            config={name: tuple(values) for name, values in self.config.items()},
            refused=tuple(self.refused),
            warnings=tuple(self.warnings),
            rings_connected="rings" in self.connected,
            trees_connected="trees" in self.connected,
            lossy=self.lossy,
            cut=cut,
            lines=self.lines,
        )

    def _understand(self, raw: str) -> tuple[Callable[..., None], tuple[str | None, ...]] | None:
        line = parse_line(raw)
        if line is None:
            match = _BARE_VERSION.fullmatch(bare_text(raw))
            return (_Reader.take_version, match.groups()) if match else None
        if line.level == "WARN":
            return _Reader.take_warning, (line.message,)
        for pattern, action in _GRAMMAR:
            match = pattern.fullmatch(line.message)
            if match:
                return action, (line.speaker, *match.groups())
        self.lossy = self.lossy or _BEGUN.match(line.message) is not None
        return _Reader.take_nothing, ()

    def take_nothing(self) -> None:
        """Only count the line."""

    def take_version(self, *texts: str) -> None:
        major, minor, patch = map(int, texts[-3:])
        self.versions.add((major, minor, patch))

    def take_warning(self, message: str) -> None:
        _note(self.warnings, message)
        if _REFUSED.fullmatch(message):
            _note(self.refused, message)

    def take_refused(self, _: str, message: str) -> None:
        _note(self.refused, message)

    def take_named(self, _: str, function: str, size: str, algorithm: str, protocol: str, low: str, high: str) -> None:
        selection = Selection(
            function=snake_case(function),
            size_bytes=int(size),
            algorithm=algorithm.lower().replace("_", ""),
            protocol=protocol.lower(),
            first_channel=int(low),
            last_channel=int(high),
        )
        self.selections[selection] += 1

    def take_numbered(self, _: str, function: str | None, size: str, algorithm: str, protocol: str) -> None:
        selection = Selection(
            function=snake_case(function) if function else None,
            size_bytes=int(size),
            algorithm=_at(ALGORITHMS, int(algorithm), "algorithm"),
            protocol=_at(PROTOCOLS, int(protocol), "protocol"),
        )
        self.selections[selection] += 1

    def take_symmetric(self, _: str, function: str, size: str, kernel: str, channels: str) -> None:
        selection = Selection(
            function=snake_case(function),
            size_bytes=int(size),
            algorithm="symmetric",
            protocol=kernel,
            first_channel=0,
            last_channel=int(channels) - 1,
        )
        self.selections[selection] += 1

    def take_copy_engine(self, _: str, function: str, size: str) -> None:
        chosen = Selection(
            function=snake_case(function), size_bytes=int(size), algorithm="copy engine", protocol="none"
        )
        self.selections[chosen] += 1

    def take_transport(self, _: str, kind: str, detail: str) -> None:
        self.transports[f"{kind}/{detail}"] += 1

    def take_environment(self, _: str, name: str, value: str) -> None:
        _note(self.environment.setdefault(name, []), value[:-1] if _NUMBER_AND_STOP.fullmatch(value) else value)

    def take_config(self, _: str, name: str, value: str) -> None:
        _note(self.config.setdefault(name, []), value)

    def take_connected(self, _: str, what: str) -> None:
        self.connected.add(what)

    def take_init(self, speaker: str, created_by: str | None, address: str, rank: str, ranks: str, state: str) -> None:
        group = self.communicators.setdefault(speaker, [])
        same = next((one for one in group[::-1] if one.address == address and not one.complete), None)
        if state == "START" or same is None:
            same = _Open(created_by=created_by or "", address=address, rank=int(rank), ranks=int(ranks))
            group.append(same)
        same.complete = state == "COMPLETE"

    def take_channels(self, speaker: str, channels: str) -> None:
        self.channels.add(int(channels))
        unfinished = [one for one in self.communicators.get(speaker, []) if not one.complete]
        if unfinished:
            unfinished[-1].channels = int(channels)


def snake_case(function: str) -> str:
    """`AllReduce` as `all_reduce`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", function).lower()


def _at(names: tuple[str, ...], index: int, what: str) -> str:
    return names[index] if index < len(names) else f"{what} {index}"


def _note(seen: list[str], text: str) -> None:
    if text not in seen:
        seen.append(text)


def _closed(one: _Open) -> Communicator:
    return Communicator(
        created_by=one.created_by, rank=one.rank, ranks=one.ranks, channels=one.channels, complete=one.complete
    )


_N = r"(\d{1,18})"
_VERSION_NUMBER = r"NCCL version (\d{1,4})\.(\d{1,4})\.(\d{1,4})(?:\+\S*)?"
_BARE_VERSION = re.compile(_VERSION_NUMBER, re.ASCII)
_NUMBER_AND_STOP = re.compile(r"-?\d+\.", re.ASCII)
_REFUSED_SHAPES = (
    r"User asked for a (?:min|max)imum of -?\d+ channels, .*"
    r"|Invalid NCCL_\w+ .*"
    r"|NCCL_\w+ -?\d+ is (?:too low|not valid), leaving it set at .*"
    r"|NCCL_\w+=.* is being ignored .*"
    r"|(?:min|max)CTAs -?\d+ is larger than .*|\w+ -?\d+ is not a valid value.*|Comm config \w+ reset to .*"
    r"|Unrecognized (?:element|prefix) token .*|All entries except the first must have a prefix.*"
)
_REFUSED = re.compile(_REFUSED_SHAPES, re.ASCII)
_BEGUN = re.compile(r"(?:\w+(?: \[[\w ]+\])?: )?\d+ Bytes ->|(?:Channel|CollNet) \d+(?:/\d+)? : \d+ ?\[", re.ASCII)
"""How a choice or a connection begins: what goes on in no known way is cut short, or of a kind that nobody knows."""

_GRAMMAR: tuple[tuple[re.Pattern[str], Callable[..., None]], ...] = tuple(
    (re.compile(pattern, re.ASCII), action)
    for pattern, action in (
        (rf"(\w+): {_N} Bytes -> Algo (\w+) proto (\w+) channel\{{Lo\.\.Hi\}}=\{{{_N}\.\.{_N}\}}", _Reader.take_named),
        (rf"(?:(\w+): )?{_N} Bytes -> Algo {_N} proto {_N} time \d+\.\d+", _Reader.take_numbered),
        (rf"(\w+) \[Symmetric\]: {_N} Bytes -> Kernel (\w+) nchannels {_N} nthreads \d+.*", _Reader.take_symmetric),
        (rf"(\w+) \[(?:Copy Engine|Hierarchical CE)\]: {_N} Bytes -> .+", _Reader.take_copy_engine),
        (
            r"(?:Channel|CollNet) \d+(?:/\d+)? : .* via (P2P|SHM|NET|COLLNET)/([\w .\-]+)(?:[/(].*)?",
            _Reader.take_transport,
        ),
        (r"(NCCL_\w+) set by environment to (.*)", _Reader.take_environment),
        (f"({_REFUSED_SHAPES})", _Reader.take_refused),
        (r"Comm config (\w[\w ]*) set to (.+)", _Reader.take_config),
        (_VERSION_NUMBER, _Reader.take_version),
        (rf"{_N} coll channels, .*p2p channels per peer", _Reader.take_channels),
        (r"Connected all (rings|trees)(?:, .*)?", _Reader.take_connected),
        (
            rf"(?:\[Rank \d+\] )?(?:(\w+) )?comm (0x[0-9a-f]+) rank {_N} nranks {_N} cudaDev .*- Init (START|COMPLETE)",
            _Reader.take_init,
        ),
    )
)
"""Shapes of whole messages, most frequent first, and what each adds; a message cut short matches none."""
