"""What is private in a text, replaced by words that say what stood there.

Names of hosts and users, absolute paths, addresses, serials, e-mail and secrets are found by their shape or because
`Names` lists them; node ids and GPU UUIDs become pseudonyms that stay the same throughout a run, so that joins hold.
Replacing more than needed is accepted, less is not. Pure text, no files: `redaction.redacted` applies it to a run, and
whatever else leaves the machine goes through it too (`report.dossier.record`).
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from rtxscale.results.redaction.field_words import EVERYDAY
from rtxscale.results.redaction.name_shapes import (
    HOSTS_SAID,
    HOSTS_SURE,
    REMOTE_PATH,
    USER_AT_HOST,
    USERS_SAID,
    USERS_SURE,
    place_of,
)
from rtxscale.results.redaction.private_names import GAP, Finder, Names, any_of, finders, parted
from rtxscale.results.redaction.private_shapes import (
    BARE_ADDRESS,
    BARE_URL,
    CLOSING_TAG,
    EMAIL,
    ENCODED_PATH,
    ESCAPE,
    FLAG_PATH,
    HARDWARE_ADDRESS,
    IPV4,
    IPV6,
    KEPT_PATHS,
    LONG_HEX,
    PATH,
    PRIVATE_HOST,
    PRIVATE_KEY,
    QUOTED_PATH,
    SECRET,
    SERIAL,
    SITE_PACKAGE,
    URL,
    UUID,
    VARIABLE_PATH,
    WINDOWS_PATH,
)
from rtxscale.results.redaction.secret_keys import SECRET_WORD
from rtxscale.results.redaction.secret_places import (
    HOST_WORD,
    SERIAL_WORD,
    URL_WORD,
    USER_WORD,
    secret_places,
    sweep_text,
    with_places,
)
from rtxscale.results.redaction.secret_text import without_told_secrets

USER, HOST, PATH_WORD, ADDRESS = USER_WORD, HOST_WORD, "redacted-path", "redacted-address"
EMAIL_WORD, ID_WORD = "redacted-email", "redacted-id"

UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff]"
)
"""Characters of no width, which may stand within a secret."""
CODE_POINT = re.compile(r"\\u(?!00[0-9]|d[89a-f])([0-9a-f]{4})", re.IGNORECASE)
"""A character beyond ASCII, written out."""
SHORTEST_ID = 6
"""Identifiers shorter than this are replaced in their own columns only: in a text they may be anything."""


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
        return self._once(parted(shown)).replace(GAP, "")

    def _once(self, text: str) -> str:
        text = without_told_secrets(PRIVATE_KEY.sub(SECRET_WORD, text))
        for replaced in self._rules:
            text = replaced(text)
        return text

    def identifier(self, text: str) -> str:
        """The pseudonym of a node id or UUID that is known; anything else as `text` has it."""
        return self.names.pseudonyms.get(text) or self.text(text)

    def version(self, text: str) -> str:
        """A version with names of users and hosts replaced: its four numbers are no address, its commit no secret.

        >>> Redactor(names=Names(hosts=frozenset({"tron"}))).version("5.15.167.4-tron")
        '5.15.167.4-redacted-host'
        """
        for finder in self._named:
            text = finder.without(text)
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
    def _rules(self) -> tuple[Callable[[str], str], ...]:
        hosts, users = self._named
        ids = any_of(self._long_ids)
        kept = EVERYDAY.union(self.names.pseudonyms.values())
        said_host, said_user = _said(HOST, kept), _said(USER, kept)
        return (
            *(() if ids is None else (partial(ids.sub, lambda found: self._long_ids[found.group().lower()]),)),
            partial(URL.sub, URL_WORD),
            partial(SECRET.sub, SECRET_WORD),
            partial(BARE_URL.sub, URL_WORD),
            partial(EMAIL.sub, EMAIL_WORD),
            partial(USER_AT_HOST.sub, f"{USER}@{HOST}"),
            partial(REMOTE_PATH.sub, said_host),
            partial(QUOTED_PATH.sub, _quoted_path),
            partial(VARIABLE_PATH.sub, PATH_WORD),
            partial(WINDOWS_PATH.sub, PATH_WORD),
            partial(ENCODED_PATH.sub, PATH_WORD),
            partial(FLAG_PATH.sub, rf"\g<before>{PATH_WORD}"),
            partial(PATH.sub, _path),
            partial(BARE_ADDRESS.sub, rf"\g<before>{ADDRESS}"),
            partial(HARDWARE_ADDRESS.sub, ADDRESS),
            partial(IPV6.sub, _ipv6),
            partial(IPV4.sub, ADDRESS),
            partial(UUID.sub, ID_WORD),
            partial(LONG_HEX.sub, ID_WORD),
            partial(SERIAL.sub, _serial),
            hosts.without,
            partial(PRIVATE_HOST.sub, HOST),
            *(partial(pattern.sub, said_host) for pattern in (*HOSTS_SURE, *HOSTS_SAID) if pattern is not REMOTE_PATH),
            *(partial(pattern.sub, said_user) for pattern in (*USERS_SURE, *USERS_SAID)),
            users.without,
        )

    @cached_property
    def _named(self) -> tuple[Finder, Finder]:
        return finders(self.names)

    @cached_property
    def _long_ids(self) -> dict[str, str]:
        return {text.lower(): name for text, name in self._fit_ids()}

    def _fit_ids(self) -> Iterator[tuple[str, str]]:
        for text, name in self.names.pseudonyms.items():
            if len(text) >= SHORTEST_ID and text.lower() not in EVERYDAY:
                yield text, name


def _plain(text: str) -> str:
    """The text as it looks: without characters of no width, wide letters as narrow ones."""
    if text.isascii() and "\\u" not in text:
        return text
    written_out = CODE_POINT.sub(lambda found: chr(int(found[1], 16)), text)
    return unicodedata.normalize("NFKC", UNSEEN.sub("", written_out))


def _said(word: str, kept: frozenset[str]) -> Callable[[re.Match[str]], str]:
    """Puts `word` for a name that is said, unless it is an everyday word or a pseudonym."""

    def change(found: re.Match[str]) -> str:
        place = place_of(found)
        if found[place].lower() in kept:
            return found.group()
        start, end = (edge - found.start() for edge in found.span(place))
        return f"{found.group()[:start]}{word}{found.group()[end:]}"

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
