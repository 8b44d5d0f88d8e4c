"""Names of people and machines in a text: which are known, and wherever they stand.

A known name is replaced whatever its case, also inside other words, unless the word is one of this field's own
(`redaction.field_words`). Of names that only a text says are names, whole words are replaced. Pure; used by
`redaction.redact`, filled by `redaction.redacted` and `redaction.names_here`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from rtxscale.results.redaction.field_words import EVERYDAY, field_words
from rtxscale.results.redaction.name_shapes import (
    HOME_OF,
    HOSTS_SAID,
    HOSTS_SURE,
    TILDE_OF,
    USER_AT_HOST,
    USERS_SAID,
    USERS_SURE,
    told,
)
from rtxscale.results.redaction.private_shapes import ESCAPE
from rtxscale.results.redaction.secret_places import HOST_WORD, USER_WORD

GAP = "\x00"
SHORTEST_NAME = 2
SHORTEST_INSIDE = 4
"""A shorter name is found in a word by where a capital or a digit begins: other words are full of its letters."""
TOKEN, DASHED = re.compile(r"\w+"), re.compile(r"[\w-]+")
HASH = re.compile(r"[0-9a-f]{8,}", re.IGNORECASE)
"""Ids of ours, commits and addresses: four letters from a to f say no name there."""


@dataclass(frozen=True, kw_only=True)
class Names:
    """What no shape tells: names of users and hosts, and the identifiers that get a pseudonym.

    `said` are those of them that only a text calls so: looked for as whole words. `words` stay whole where a name is a
    part of them, such as the names of installed packages.
    """

    users: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    pseudonyms: Mapping[str, str] = field(default_factory=dict)
    said: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()

    def __or__(self, other: Names) -> Names:
        """Both together; the pseudonyms of `other` come first, and what either is sure of is sure."""
        users, hosts = self.users | other.users, self.hosts | other.hosts
        sure = (self.users | self.hosts) - self.said | (other.users | other.hosts) - other.said
        return Names(
            users=users,
            hosts=hosts,
            pseudonyms={**self.pseudonyms, **other.pseudonyms},
            said=(users | hosts) - sure,
            words=self.words | other.words,
        )


def names_in(texts: Iterable[str]) -> Names:
    """Users and hosts that the texts give away: by a home directory, `user@host`, a variable or NCCL's line prefix.

    >>> found = names_in(["/home/ada/run: tron:7:9 [0] NCCL INFO x", "as user bob"])
    >>> sorted(found.users), sorted(found.hosts), sorted(found.said)
    (['ada', 'bob'], ['tron'], ['bob'])
    """
    users: set[str] = set()
    hosts: set[str] = set()
    said: set[str] = set()
    for text in map(parted, texts):
        users.update(HOME_OF.findall(text), *(told(pattern, text) for pattern in USERS_SURE))
        hosts.update(*(told(pattern, text) for pattern in HOSTS_SURE))
        at = USER_AT_HOST.findall(text)
        told_users = {user for user, _ in at}.union(TILDE_OF.findall(text), *(told(one, text) for one in USERS_SAID))
        told_hosts = {host for _, host in at}.union(*(told(one, text) for one in HOSTS_SAID))
        said |= (told_users | told_hosts) - users - hosts
        users |= told_users
        hosts |= told_hosts
    sure = {trimmed(name) for name in (users | hosts) - said}
    return Names(
        users=frozenset(map(trimmed, users)),
        hosts=frozenset(map(trimmed, hosts)),
        said=frozenset({trimmed(name) for name in said} - sure),
    )


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
class Finder:
    """Replaces names of one kind by one word."""

    names: frozenset[str]
    said: frozenset[str]
    words: frozenset[str]
    word: str

    def without(self, text: str) -> str:
        """The text without these names.

        >>> Finder(names=frozenset({"ada", "tronbox"}), said=frozenset(), words=frozenset(), word="X").without(
        ...     "ADA's AdaBox2 is mytronbox, not an adage"
        ... )
        "X's XBox2 is myX, not an adage"
        """
        for pattern, shown in (
            (self._domains, self.word),
            (self._whole, self._bare),
            (self._long, self._inside),
            (self._short, self._inside),
        ):
            if pattern is not None:
                text = pattern.sub(shown, text)
        return text

    def _bare(self, found: re.Match[str]) -> str:
        """A name that is a word, unless it is a part of a longer one of this field, such as `max` of `max_steps`."""
        around = {_around(found, TOKEN), _around(found, DASHED)} - {found.group().lower()}
        return found.group() if around & field_words() else self.word

    def _inside(self, found: re.Match[str]) -> str:
        """A name within a word, unless that is one of this field, or of no language."""
        run = _around(found, TOKEN)
        if (len(found.group()) < SHORTEST_INSIDE and not _stands_out(found)) or HASH.fullmatch(run):
            return found.group()
        kept = EVERYDAY | field_words() | self.words
        parts = {run, _around(found, DASHED), *re.split(r"[_\d]+", run)}
        return found.group() if any(found.group().lower() in part and part in kept for part in parts) else self.word

    @cached_property
    def _domains(self) -> re.Pattern[str] | None:
        """A domain that hosts are in, with all that stands in front of it."""
        domains = _alternatives(name for name in self._fit(self.names) if "." in name)
        of_hosts = self.word == HOST_WORD and domains
        return re.compile(rf"(?<![\w.-])(?:[\w-]+\.)*(?:{domains})(?!\w)", re.IGNORECASE) if of_hosts else None

    @cached_property
    def _whole(self) -> re.Pattern[str] | None:
        return any_of(self._fit(self.names))

    @cached_property
    def _long(self) -> re.Pattern[str] | None:
        return _anywhere(name for name in self._fit(self.names - self.said) if len(name) >= SHORTEST_INSIDE)

    @cached_property
    def _short(self) -> re.Pattern[str] | None:
        return _anywhere(name for name in self._fit(self.names - self.said) if len(name) < SHORTEST_INSIDE)

    def _fit(self, names: Iterable[str]) -> set[str]:
        return fit_names(names, of_hosts=self.word == HOST_WORD)


def finders(names: Names) -> tuple[Finder, Finder]:
    """Of hosts, then of users: a host's name may hold a user's."""
    return (
        Finder(names=names.hosts, said=names.said, words=names.words, word=HOST_WORD),
        Finder(names=names.users, said=names.said, words=names.words, word=USER_WORD),
    )


def any_of(names: Iterable[str]) -> re.Pattern[str] | None:
    """Any of these names as a whole word, whatever its case; None without names."""
    pattern = _alternatives(names)
    return re.compile(rf"(?<![^\W_])(?:{pattern})(?![^\W_])", re.IGNORECASE) if pattern else None


def fit_names(names: Iterable[str], *, of_hosts: bool) -> set[str]:
    """Names fit to be looked for, in each of their forms: not too short, and no word that texts of this field need.

    >>> sorted(fit_names(["tron.lab.example.org", "ring"], of_hosts=True))
    ['example.org', 'lab.example.org', 'tron', 'tron.lab.example.org']
    >>> sorted(fit_names(["José Pérez"], of_hosts=False))
    ['Jose', 'Jose Perez', 'José', 'José Pérez', 'Perez', 'Pérez']
    """
    split = _domains if of_hosts else _parts
    forms = {form for name in names for form in (name, *split(name))}
    plain = {_unaccented(form) for form in forms}
    words = EVERYDAY | field_words()
    return {form for form in forms | plain if len(form) >= SHORTEST_NAME and form.lower() not in words}


def parted(text: str) -> str:
    """The text with a gap after every escape."""
    return ESCAPE.sub(rf"\g<0>{GAP}", text)


def trimmed(name: str) -> str:
    """A name without the signs at its ends."""
    return name.strip(".-_")


def _domains(host: str) -> list[str]:
    """The first label of a host's name, and the domains that it is in; an address has none."""
    labels = host.split(".")
    if re.fullmatch(r"[\d.]+", host):
        return []
    return [labels[0], *(".".join(labels[first:]) for first in range(1, len(labels) - 1))]


def _parts(user: str) -> list[str]:
    """First and last names."""
    return [part for part in re.split(r"[.\s]+", user) if len(part) > SHORTEST_NAME]


def _unaccented(name: str) -> str:
    return "".join(sign for sign in unicodedata.normalize("NFKD", name) if not unicodedata.combining(sign))


def _alternatives(names: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(set(names), key=lambda name: (-len(name), name))))


def _anywhere(names: Iterable[str]) -> re.Pattern[str] | None:
    pattern = _alternatives(names)
    return re.compile(pattern, re.IGNORECASE) if pattern else None


def _around(found: re.Match[str], word: re.Pattern[str]) -> str:
    """The run of such characters that the name stands in, in small letters."""
    start, end = found.span()
    text = found.string
    while start and word.fullmatch(text[start - 1]):
        start -= 1
    ends = word.match(text, end)
    return text[start : ends.end() if ends else end].lower()


def _stands_out(found: re.Match[str]) -> bool:
    """Whether a short name is set off from the letters around it by a capital or a digit."""
    text, (start, end) = found.string, found.span()
    before, after = text[start - 1 : start], text[end : end + 1]
    begins = _changes(before, text[start]) or (before.islower() and text[start].isupper())
    ends = _changes(text[end - 1], after) or (text[end - 1].islower() and after.isupper())
    return begins and ends


def _changes(one: str, other: str) -> bool:
    """Whether a letter meets a digit, or either meets what is none, or nothing."""
    return not ((one.isalpha() and other.isalpha()) or (one.isdigit() and other.isdigit()))
