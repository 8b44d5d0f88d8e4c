"""Where data holds secrets and names: under a key that says so, beside a name, and in the words of a command.

Pure. `Redactor.data` puts the words in that are found here; `sweep_text` does so in a sweep file, which keeps its form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rtxscale.results.redaction.field_words import EVERYDAY
from rtxscale.results.redaction.secret_keys import SECRET_WORD, is_secret_key, is_secret_value
from rtxscale.spec.document import Path, parse_document

USER_WORD, HOST_WORD, SERIAL_WORD, URL_WORD = "redacted-user", "redacted-host", "redacted-serial", "redacted-url"
USERS = frozenset(("user", "username", "login", "logname", "sudo_user"))
HOSTS = frozenset(("hostname", "fqdn", "nodename", "host_name", "node_name", "slurmd_nodename", "computername"))
HOST_KEYS = frozenset(("host", "ip", "addr", "address", "nodelist", "endpoint", "hostname", "nodename"))
USER_KEYS = frozenset(("user", "username", "logname"))
"""Last words of keys such as `MASTER_ADDR` and `SLURM_JOB_USER`, whose values are names if they look like some."""
HOST_FLAGS = re.compile(r"--(?:[a-z]+[_-])?(?:hosts?|host-?name|addr(?:ess)?|endpoint|nodelist|server)")
HOST_PROGRAMS = re.compile(r"ipmi\w*|mpirun|mpiexec|horovodrun")
HOST_FIELDS = frozenset(("wall_power.address",))
"""Fields of a sweep that hold a host or its URL."""
LIKE_USER = re.compile(r"[A-Za-z_][\w.-]*")
LIKE_HOST = re.compile(r"(?!0x)(?=[^:]*[A-Za-z])[A-Za-z0-9][\w.-]*(?:\[[\d,-]+\])?(?::\d{1,5})?")
SERIALS = re.compile(r"serial(?!i)|(?:asset|service)[ _-]?tag", re.IGNORECASE)
COMMANDS = frozenset(("command", "commands", "cmd", "argv", "args", "arguments"))
PASSWORD_FLAGS = frozenset(("-p", "-P", "-pw", "-pass"))
PORT_PROGRAMS = frozenset(("ssh", "scp", "sftp", "rsync", "nc", "docker", "podman", "ssh-keyscan"))
USER_FLAGS = frozenset(("-u", "-U", "--user", "--username", "--proxy-user", "--auth", "--login"))
USER_PASSWORD = re.compile(r"[A-Za-z_][\w.@+-]*:(?!//)(?!\d{1,5}(?:/|$))\S.*", re.DOTALL)


def word_for(name: str, value: str) -> str | None:
    """The word that stands for a value of this name; None where the name says nothing.

    >>> [word_for(name, "x1") for name in ("WANDB_API_KEY", "board serial", "hostname", "os")]
    ['redacted-secret', 'redacted-serial', 'redacted-host', None]
    """
    if not is_secret_value("", value) or value.startswith("redacted-"):
        return None
    if is_secret_key(name):
        return SECRET_WORD if is_secret_value(name, value) else None
    last = re.split(r"[\s.]+", name.strip().lower())[-1]
    if SERIALS.search(name):
        return SERIAL_WORD
    if last in HOSTS:
        return HOST_WORD
    return USER_WORD if last in USERS else _word_for_key(name, value.strip())


def _word_for_key(key: str, value: str) -> str | None:
    """The word for the value of a key of several words, if it looks like a name."""
    last = re.split(r"[_.-]", key.lower())[-1]
    if re.search(r"\s", key) or value.lower() in EVERYDAY:
        return None
    if last in HOST_KEYS and LIKE_HOST.fullmatch(value):
        return HOST_WORD
    return USER_WORD if last in USER_KEYS and LIKE_USER.fullmatch(value) else None


def _word_for_field(place: Path, value: str) -> str | None:
    """The word for the value of a field that always holds a host or its URL."""
    if ".".join(map(str, place[-2:])) not in HOST_FIELDS or value.startswith("redacted-"):
        return None
    return URL_WORD if "://" in value else HOST_WORD


def secret_places(data: Any, place: Path = ()) -> Iterator[tuple[Path, str]]:
    """Path and new text of every value in JSON data that must go for where it stands.

    >>> dict(secret_places({"options": {"api_token": "x", "width": 3}, "command": ["curl", "-u", "a:b", "--key", "c"]}))
    {('options', 'api_token'): 'redacted-secret', ('command', 2): 'redacted-secret'}
    """
    if isinstance(data, Mapping):
        name = next((data[key] for key in ("name", "key", "variable") if isinstance(data.get(key), str)), "")
        for key, item in data.items():
            asked = name if key == "value" else str(key)
            inner = (*place, key)
            if is_secret_key(asked):
                yield from _leaves(asked, item, inner)
            elif isinstance(item, str) and (word := _word_for_field(inner, item) or word_for(asked, item)) is not None:
                yield inner, word
            else:
                yield from secret_places(item, inner)
    elif isinstance(data, list | tuple):
        words = [item if isinstance(item, str) else "" for item in data]
        yield from (((*place, index), word) for index, word in _words(words, bool({*place[-1:]} & COMMANDS)))
        for index, item in enumerate(data):
            yield from secret_places(item, (*place, index))


def _leaves(name: str, data: Any, place: Path) -> Iterator[tuple[Path, str]]:
    """Every text and number below a secret's key."""
    if isinstance(data, Mapping):
        for key, item in data.items():
            yield from _leaves(name, item, (*place, key))
    elif isinstance(data, list | tuple):
        for index, item in enumerate(data):
            yield from _leaves(name, item, (*place, index))
    elif data is not None and not isinstance(data, bool) and is_secret_value(name, str(data)):
        yield place, SECRET_WORD


def _words(words: Sequence[str], is_command: bool) -> Iterator[tuple[int, str]]:
    """Index and new text of the words of a list that are secrets; any list may be a command's."""
    program = words[0].rpartition("/")[2] if words else ""
    for index, word in enumerate(words):
        before = words[index - 1] if index else ""
        flag, sign, value = word.partition("=")
        if word.startswith("redacted-"):
            continue
        if sign and value and is_secret_key(flag):
            yield index, f"{flag}={SECRET_WORD}"
        elif _is_password(before, word, program) or _is_user_password(before, word, is_command and index > 0):
            yield index, SECRET_WORD
        elif is_command and not word.startswith("-"):
            yield from ((index, name) for name in _names(before, word, program))


def _names(flag: str, word: str, program: str) -> Iterator[str]:
    """The word for what a flag of a command names, if that is a user or a host."""
    if flag in USER_FLAGS:
        yield USER_WORD
    elif HOST_FLAGS.fullmatch(flag) or (flag == "-H" and HOST_PROGRAMS.fullmatch(program)):
        yield from [HOST_WORD] * (LIKE_HOST.fullmatch(word) is not None and word.lower() not in EVERYDAY)


def _is_password(flag: str, word: str, program: str) -> bool:
    if not word or not flag.startswith("-"):
        return False
    if flag in PASSWORD_FLAGS:
        return not word.startswith("-") and not (program in PORT_PROGRAMS and re.fullmatch(r"[\d:]+", word))
    return "=" not in flag and flag.startswith("--") and is_secret_key(flag) and not word.startswith("--")


def _is_user_password(flag: str, word: str, is_argument: bool) -> bool:
    """Whether a word is a user and a password, as `-u` has them, or any argument of a command."""
    return (flag in USER_FLAGS and ":" in word) or (
        is_argument and ": " not in word and USER_PASSWORD.fullmatch(word) is not None
    )


def with_places(data: Any, places: Mapping[Path, str], place: Path = ()) -> Any:
    """The data with these texts at these paths."""
    if place in places:
        return places[place]
    if isinstance(data, Mapping):
        return {key: with_places(item, places, (*place, key)) for key, item in data.items()}
    if isinstance(data, list | tuple):
        return [with_places(item, places, (*place, index)) for index, item in enumerate(data)]
    return data


def sweep_text(text: str) -> str:
    r"""A YAML text with every value replaced that is a secret for where it stands; all else as it was written.

    >>> print(sweep_text("options: {token: abc d, width: 3}  # wide\ncommand: [x, --password, y]"))
    options: {token: redacted-secret, width: 3}  # wide
    command: [x, --password, redacted-secret]
    """
    document = parse_document(text, "sweep.yaml")
    found = [(document.marks[place], word) for place, word in secret_places(document.data) if place in document.marks]
    for mark, word in sorted(found, key=lambda one: -one[0].start):
        ending = "\n" if text[mark.start : mark.end].endswith("\n") else ""
        text = text[: mark.start] + word + ending + text[mark.end :]
    return text
