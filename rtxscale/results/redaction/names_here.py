"""Names that this machine knows: login, home, git author, accounts, hosts.

A run is most often published where it was measured. Names are looked for in what is published and never written down.
Called by `redaction.redacted`.
"""

from __future__ import annotations

import contextlib
import getpass
import ipaddress
import os
import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rtxscale.results.redaction.private_names import Names

PASSWD, HOSTS = Path("/etc/passwd"), Path("/etc/hosts")
FIRST_PERSON, LAST_PERSON = 1000, 60_000
"""User ids of people; those of services are below, those that stand for nobody above."""
MOST = 200
"""Most accounts, and most hosts, that are taken from a file: a list of blocked sites is none of neighbours."""
AUTHORS = ("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL", "EMAIL")
LOGINS = ("USER", "LOGNAME", "SUDO_USER", "USERNAME")
GIT_TIMEOUT_S = 5.0


def names_here(environment: Mapping[str, str] | None = None) -> Names:
    """Users by login, home, full name and git author; hosts by their own name and by /etc/hosts.

    Names of neighbours in /etc/hosts are looked for as whole words, as some are everyday words. `environment` is
    `os.environ` by default.
    """
    environment = os.environ if environment is None else environment
    users = {Path.home().name, *(environment[name] for name in LOGINS if environment.get(name)), *_accounts(PASSWD)}
    with contextlib.suppress(KeyError, OSError):
        users.add(getpass.getuser())
    users |= {name for text in (*_git_author(), *map(environment.get, AUTHORS)) if text for name in people(text)}
    hosts = {socket.gethostname(), socket.getfqdn()}
    neighbours = frozenset(_neighbours(HOSTS)) - hosts
    return Names(users=frozenset(users - {""}), hosts=frozenset(hosts | neighbours) - {""}, said=neighbours)


def people(text: str) -> Iterator[str]:
    """What of an author's name or address may stand elsewhere.

    >>> list(people("ada.lovelace@lab.example.org")), list(people("Ada Lovelace"))
    (['ada.lovelace'], ['Ada Lovelace'])
    """
    name = text.strip().partition("@")[0]
    if any(sign.isalpha() for sign in name):
        yield name


def accounts(lines: Iterable[str]) -> Iterator[str]:
    """Logins, full names and homes of the people in /etc/passwd.

    >>> list(accounts(["ada:x:1000:1000:Ada Lovelace,,,:/home/countess:/bin/sh", "web:x:33:33:w:/var/www:/bin/sh"]))
    ['ada', 'Ada Lovelace', 'countess']
    """
    for line in lines:
        fields = line.rstrip("\n").split(":")
        if len(fields) == 7 and fields[2].isdigit() and FIRST_PERSON <= int(fields[2]) <= LAST_PERSON:
            yield fields[0]
            yield from people(fields[4].partition(",")[0])
            yield Path(fields[5]).name


def neighbours(lines: Iterable[str]) -> Iterator[str]:
    """Names of hosts in /etc/hosts that are somewhere else, in a private network.

    >>> list(neighbours(["127.0.0.1 localhost", "10.0.0.7 tron2 tron2.lab  # mine", "0.0.0.0 ads.example.com"]))
    ['tron2', 'tron2.lab']
    """
    for line in lines:
        words = line.partition("#")[0].split()
        with contextlib.suppress(ValueError, IndexError):
            address = ipaddress.ip_address(words[0].partition("%")[0])
            if address.is_private and not (address.is_loopback or address.is_unspecified or address.is_multicast):
                yield from words[1:]


def _accounts(path: Path) -> list[str]:
    return list(accounts(_lines(path)))[: 3 * MOST]


def _neighbours(path: Path) -> list[str]:
    return list(neighbours(_lines(path)))[:MOST]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _git_author() -> list[str]:
    """Name and address that git would sign with here; nothing without git."""
    argv = ["git", "config", "--get-regexp", r"^(user|author|committer)\.(name|email)$"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=False)  # noqa: S603  fixed words
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.partition(" ")[2] for line in done.stdout.splitlines()]
