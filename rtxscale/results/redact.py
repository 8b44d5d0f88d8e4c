"""What is private in a text, replaced by words that say what stood there.

Names of hosts and users, absolute paths, addresses, serials, e-mail and secrets are found by their shape or because
`Names` lists them; node ids and GPU UUIDs become pseudonyms that stay the same throughout a run, so that joins hold.
Replacing more than needed is accepted, less is not. Pure text, no files: `results.redacted` applies it to a run, and
whatever else leaves the machine goes through it too (`report.dossier`).
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rtxscale.results.private_shapes import (
    BARE_ADDRESS,
    CLOSING_TAG,
    DOTTED_PORT,
    EMAIL,
    ENCODED_PATH,
    ESCAPE,
    FLAG_PATH,
    HARDWARE_ADDRESS,
    HOME_OF,
    HOST_OF,
    HOST_PORT,
    HOST_SAID,
    IPV4,
    IPV6,
    KEPT_PATHS,
    LONG_HEX,
    NCCL_PREFIX,
    PATH,
    PRIVATE_HOST,
    PRIVATE_KEY,
    QUOTED_PATH,
    SECRET,
    SERIAL,
    SITE_PACKAGE,
    URL,
    USER_AT_HOST,
    USER_OF,
    USER_SAID,
    UUID,
    VARIABLE_PATH,
    WINDOWS_PATH,
)
from rtxscale.results.secret_keys import SECRET_WORD
from rtxscale.results.secret_places import HOST_WORD, SERIAL_WORD, USER_WORD, secret_places, sweep_text, with_places
from rtxscale.results.secret_text import without_told_secrets

USER, HOST, PATH_WORD, ADDRESS = USER_WORD, HOST_WORD, "redacted-path", "redacted-address"
EMAIL_WORD, URL_WORD, ID_WORD = "redacted-email", "redacted-url", "redacted-id"

_EVERYDAY = """
admin administrator auto bench cluster compute container cpu cuda data debian default dev docker gpu gpus guest head
home host ip job jobs jupyter kernel lab linux local localhost login master ml model name nccl node nodes none null
nvidia off on path process python ray redacted ring root run runner server service session shared sim simple smi speed
step steps strong sweep system test tester torch torchrun train training tree trial trials ubuntu unknown url user
users vision warm weak work worker workers workspace
"""
COMMON = frozenset(_EVERYDAY.split())
"""Words that are no one's name alone: as a name they are left where they stand, or tables would lose their meaning."""
GAP = "\x00"
UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff]"
)
"""Characters of no width, which may stand within a secret."""
CODE_POINT = re.compile(r"\\u(?!00[0-9]|d[89a-f])([0-9a-f]{4})", re.IGNORECASE)
"""A character beyond ASCII, written out."""
SHORTEST_NAME = 2
SHORTEST_ID = 6
"""Identifiers shorter than this are replaced in their own columns only: in a text they may be anything."""


@dataclass(frozen=True, kw_only=True)
class Names:
    """What no shape tells: names of users and hosts, and the identifiers that get a pseudonym."""

    users: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    pseudonyms: Mapping[str, str] = field(default_factory=dict)

    def __or__(self, other: Names) -> Names:
        """Both together; the pseudonyms of `other` come first."""
        return Names(
            users=self.users | other.users,
            hosts=self.hosts | other.hosts,
            pseudonyms={**self.pseudonyms, **other.pseudonyms},
        )


def names_in(texts: Iterable[str]) -> Names:
    """Users and hosts that the texts give away: by a home directory, `user@host`, a variable or NCCL's line prefix.

    >>> names_in(["/home/ada/run: tron:7:9 [0] NCCL INFO x", "tron:7:9 [0] NCCL INFO y"])
    Names(users=frozenset({'ada'}), hosts=frozenset({'tron'}), pseudonyms={})
    """
    users: set[str] = set()
    hosts: set[str] = set()
    for text in map(_parted, texts):
        users.update(*(pattern.findall(text) for pattern in (HOME_OF, USER_OF)))
        hosts.update(*(pattern.findall(text) for pattern in (NCCL_PREFIX, HOST_OF)))
        for user, host in USER_AT_HOST.findall(text):
            users.add(user)
            hosts.add(host)
        users.update(found["name"] for found in USER_SAID.finditer(text))
        hosts.update(found["name"] for found in HOST_SAID.finditer(text))
    return Names(users=frozenset(map(_trimmed, users)), hosts=frozenset(map(_trimmed, hosts)))


def pseudonyms(nodes: Iterable[str], gpus: Iterable[str]) -> dict[str, str]:
    """`node-1`, `gpu-1` and so on, in the order given; a UUID has the same pseudonym without its `GPU-` in front.

    >>> pseudonyms(["ray-9f"], ["GPU-1b4e28ba-2fa1"])
    {'ray-9f': 'node-1', 'GPU-1b4e28ba-2fa1': 'gpu-1', '1b4e28ba-2fa1': 'gpu-1'}
    """
    found: dict[str, str] = {}
    for kind, identifiers in (("node", nodes), ("gpu", gpus)):
        for place, identifier in enumerate(dict.fromkeys(filter(None, identifiers)), start=1):
            found[identifier] = f"{kind}-{place}"
            found.setdefault(re.sub(r"^(?:GPU|MIG)-(?=\w{8}-)", "", identifier), found[identifier])
    return found


@dataclass(frozen=True, kw_only=True)
class Redactor:
    """Redaction with these names."""

    names: Names = field(default_factory=Names)

    def text(self, text: str) -> str:
        """`text` with everything private replaced.

        >>> Redactor().text("ada@lab.example: /home/ada/x.py failed on 10.0.0.7")
        'redacted-email: redacted-path failed on redacted-address'
        """
        shown = self._escaped(text)
        plain = _plain(text)
        if plain == text:
            return shown
        # Unseen characters and wide letters stay, unless something private is found without them.
        found = self._escaped(plain)
        return shown if found == _plain(shown) else found

    def _escaped(self, text: str) -> str:
        shown = self._once(text)
        if not ESCAPE.search(shown):
            return shown
        # In text that was written out with escapes, the letter of one sticks to what follows it.
        return self._once(_parted(shown)).replace(GAP, "")

    def _once(self, text: str) -> str:
        text = without_told_secrets(PRIVATE_KEY.sub(SECRET_WORD, text))
        for pattern, replacement in self._rules:
            text = pattern.sub(replacement, text)
        return text

    def identifier(self, text: str) -> str:
        """The pseudonym of a node id or UUID that is known; anything else as `text` has it."""
        return self.names.pseudonyms.get(text) or self.text(text)

    def version(self, text: str) -> str:
        """A version with names of users and hosts replaced: its four numbers are no address, its commit no secret.

        >>> Redactor(names=Names(hosts=frozenset({"tron"}))).version("5.15.167.4-tron")
        '5.15.167.4-redacted-host'
        """
        for pattern, replacement in self._named:
            text = pattern.sub(replacement, text)
        return text

    def data(self, value: Any) -> Any:
        """JSON data with every text in it redacted, keys included, and whatever stands under a secret's key.

        >>> Redactor().data({"api_token": "x", "width": 3, "command": ["curl", "--password", "y"]})
        {'api_token': 'redacted-secret', 'width': 3, 'command': ['curl', '--password', 'redacted-secret']}
        """
        return self._texts(with_places(value, dict(secret_places(value))))

    def _texts(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self._texts(key): self._texts(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._texts(item) for item in value]
        return value

    def sweep(self, text: str) -> str:
        """The text of a sweep file, still one: what stands under a secret's key goes, then whatever else is private."""
        return self.text(sweep_text(text))

    @cached_property
    def _rules(self) -> tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]:
        rules: list[tuple[re.Pattern[str] | None, str | Callable[[re.Match[str]], str]]] = [
            (_any_of(self._long_ids), lambda found: self._long_ids[found.group().lower()]),
            (URL, URL_WORD),
            (SECRET, SECRET_WORD),
            (EMAIL, EMAIL_WORD),
            (USER_AT_HOST, f"{USER}@{HOST}"),
            (QUOTED_PATH, _quoted_path),
            (VARIABLE_PATH, PATH_WORD),
            (WINDOWS_PATH, PATH_WORD),
            (ENCODED_PATH, PATH_WORD),
            (FLAG_PATH, rf"\g<before>{PATH_WORD}"),
            (PATH, _path),
            (BARE_ADDRESS, rf"\g<before>{ADDRESS}"),
            (HARDWARE_ADDRESS, ADDRESS),
            (IPV6, _ipv6),
            (IPV4, ADDRESS),
            (UUID, ID_WORD),
            (LONG_HEX, ID_WORD),
            (SERIAL, _serial),
            (_any_of(_whole_names(self.names.hosts)), HOST),
            (PRIVATE_HOST, HOST),
            (HOST_SAID, _said(HOST)),
            (HOST_PORT, _said(HOST)),
            (DOTTED_PORT, _said(HOST)),
            (USER_SAID, _said(USER)),
            (_any_of(_whole_names(self.names.users)), USER),
        ]
        return tuple((pattern, replacement) for pattern, replacement in rules if pattern is not None)

    @cached_property
    def _named(self) -> tuple[tuple[re.Pattern[str], str], ...]:
        kinds = ((self.names.hosts, HOST), (self.names.users, USER))
        found = ((_any_of(_whole_names(names)), word) for names, word in kinds)
        return tuple((pattern, word) for pattern, word in found if pattern is not None)

    @cached_property
    def _long_ids(self) -> dict[str, str]:
        return {text.lower(): name for text, name in self._fit_ids()}

    def _fit_ids(self) -> Iterator[tuple[str, str]]:
        for text, name in self.names.pseudonyms.items():
            if len(text) >= SHORTEST_ID and text.lower() not in COMMON:
                yield text, name


def _plain(text: str) -> str:
    """The text as it looks: without characters of no width, wide letters as narrow ones."""
    if text.isascii() and "\\u" not in text:
        return text
    written_out = CODE_POINT.sub(lambda found: chr(int(found[1], 16)), text)
    return unicodedata.normalize("NFKC", UNSEEN.sub("", written_out))


def _parted(text: str) -> str:
    """The text with a gap after every escape."""
    return ESCAPE.sub(rf"\g<0>{GAP}", text)


def _any_of(names: Iterable[str]) -> re.Pattern[str] | None:
    """Any of these names as a whole word, whatever its case; None without names."""
    longest_first = sorted(set(names), key=lambda name: (-len(name), name))
    if not longest_first:
        return None
    alternatives = "|".join(map(re.escape, longest_first))
    return re.compile(rf"(?<![^\W_])(?:{alternatives})(?![^\W_])", re.IGNORECASE)


def _whole_names(names: Iterable[str]) -> set[str]:
    """Names fit to be looked for: not too short, and none that is an everyday word of this field."""
    short = {name.partition(".")[0] for name in names if not re.fullmatch(r"[\d.]+", name)}
    return {name for name in {*names, *short} if len(name) >= SHORTEST_NAME and name.lower() not in COMMON}


def _trimmed(name: str) -> str:
    return name.strip(".-_")


def _said(word: str) -> Callable[[re.Match[str]], str]:
    """Puts `word` for a name that is said, unless it is an everyday word."""

    def change(found: re.Match[str]) -> str:
        if found["name"].lower() in COMMON:
            return found.group()
        start = found.start("name") - found.start()
        return f"{found.group()[:start]}{word}{found.group()[found.end('name') - found.start() :]}"

    return change


def _quoted_path(found: re.Match[str]) -> str:
    if found["path"].startswith(KEPT_PATHS):
        return found.group()
    return f"{found['quote']}{_shown_path(found['path'])}{found['quote']}"


def _path(found: re.Match[str]) -> str:
    text = found.group()
    if text.startswith(KEPT_PATHS) or CLOSING_TAG.match(found.string, found.start()):
        return text
    return _shown_path(text)


def _shown_path(path: str) -> str:
    """What may stay of a path: the part below site-packages, which is published code."""
    package = SITE_PACKAGE.search(path)
    return f"{PATH_WORD}/{package.group(1)}" if package else PATH_WORD


def _ipv6(found: re.Match[str]) -> str:
    address = found.group()
    tail = ":" if address.endswith(":") and not address.endswith("::") else ""
    try:
        ipaddress.IPv6Address(address.removesuffix(tail))
    except ValueError:
        return address
    return f"{ADDRESS}{tail}"


def _serial(found: re.Match[str]) -> str:
    return f"{found['key'] or found['near'] or ''}{SERIAL_WORD}"
