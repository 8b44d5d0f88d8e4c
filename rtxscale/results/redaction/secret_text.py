"""Secrets in a text that are known by what stands in front of them: a name, a flag of a command, a program.

A value goes whole: to its closing quote, or, where a passphrase may have several words, to the end of the line. Pure;
called by `redaction.redact`.
"""

from __future__ import annotations

import re

from rtxscale.results.redaction.secret_keys import ALONE, HINT, PHRASES, SECRET_WORD, is_secret_key, is_secret_value

_SPACE = r"[ \t\x00]"
_SPACED = r"(?:(?:secret )?(?:api|access|private|account|master|signing|encryption|connection) |secret )?"
"""The first words of a name of several."""
_OF_WHAT = rf"(?:{_SPACE}+(?:for|of|to|on|at|in)(?:{_SPACE}+[\w.@'-]{{1,60}}){{1,4}}?)?"
KEY = re.compile(
    rf"(?<![\w.-])(?![\w.-]*redacted-)"
    rf"(?P<key>{_SPACED}(?=[\w.-]{{0,80}}?(?:{HINT}))[\w.-]{{1,120}})"
    rf"(?P<sign>(?P<said>(?:\\*[\"'`])?[\])*]{{0,2}}{_SPACE}*(?::=|=>|[:=](?![:=])){_SPACE}*(?:(?:\n|\\n\x00?)\s*(?=\\*[\"\']))?)"
    rf"|(?P<pair>\\*[\"']{_SPACE}*,{_SPACE}*(?=\\*[\"'])|(?P<bar>{_SPACE}*\|{_SPACE}*))"
    rf"|(?P<told>{_OF_WHAT}{_SPACE}+(?:is|was|are|ist){_SPACE}*:?{_SPACE}+)"
    rf"|(?P<aside>{_SPACE}+[(\[](?=[^\s()\[\]]{{4,200}}[)\]]))"
    rf"|(?P<flag>\\*[\"']?(?:{_SPACE}*,{_SPACE}*|{_SPACE}*(?:\n|\\n){_SPACE}*-{_SPACE}+|{_SPACE}+))(?!{_SPACE}))",
    re.IGNORECASE,
)
"""A name that may be a secret's, and the sign between it and its value."""
QUOTED = re.compile(
    r"(?P<open>\\*[\"'`])(?![ \t]*[,}\]):])(?P<value>(?:(?!(?<!\\)(?P=open))(?:\\.|[^\n\\]))*)"
    r"(?P<close>(?P=open)|(?=\n)|\Z)"
)
BLOCK = re.compile(r"(?P<value>[|>][-+\d]*[ \t]*(?:(?:\n|\\n\x00?)[ \t]+[^\n\\\"]*)+)")
LINES = {
    open_quotes: re.compile(
        rf"(?P<value>[^\s\"'`,;}}\])](?:(?<=\w)'(?=\w)|(?!\\+[nr\"'`])[^\n\r{re.escape(open_quotes)}])*)"
    )
    for open_quotes in ("", '"', "'", "`", "\"'", '"`', "'`", "\"'`")
}
"""The rest of a line up to a quote that was open before its name."""
WORD = re.compile(
    r"(?P<value>(?:(?:bearer|basic|digest)\s+)?(?:\\(?![nrtbfux0\"'])|[^\s\"'`,;&|}\])\\])+)", re.IGNORECASE
)
NOT_TOLD = re.compile(
    r"(?:refused|rejected|denied|warned|accepted|valid|correct|needed|checked|sent|seen|written|known|public|private"
    r"|not|invalid|required|wrong|missing|expired|empty|set|incorrect|too|needed|unknown|unset|used|null|none|an?|the"
    r"|given|read|in|from|stored|kept|taken|never|always|no|one|what|shown|asked|found|replaced|redacted\S*|only|also"
    r"|as|by|it|hidden|on|off|of|to|for|at|still|already|here|there)\b",
    re.IGNORECASE,
)
"""What follows `the password is` where it is not told."""

_BETWEEN = rf"\\*[\"']?(?:{_SPACE}*[,=]{_SPACE}*|{_SPACE}*\n{_SPACE}*-{_SPACE}+|{_SPACE}*)"
USER_FLAG = re.compile(
    rf"(?<![\w-])(?P<before>(?:-[uU]|--(?:proxy-)?user|--auth|--login){_BETWEEN})"
    r"(?:(?P<quote>\\*[\"'])(?=[^\"'\n:]+:)(?:(?!(?P=quote))[^\n])+(?P=quote)"
    r"|(?!\d+:\d+\b)[^\s\"',:\[\]{}]+:[^\s\"',\]}]+)"
)
"""`-u user:password`, as curl has it; `docker -u 1000:1000` is none."""
SHORT_FLAG = re.compile(
    rf"(?<![\w-])(?<!mkdir )(?<!cp )(?<!tar )(?<!pytest )(?P<before>-(?:[pP]|pw|pass)\\*[\"']?"
    rf"(?:{_SPACE}*,{_SPACE}*|{_SPACE}*\n{_SPACE}*-{_SPACE}+|{_SPACE}+|=))"
    r"(?:(?P<quote>\\*[\"'])(?!-)(?:(?!(?P=quote))[^\n])+(?P=quote)"
    r"|(?!\d{1,5}(?:[:/]\w+)*(?![\w.])|[-/|&<>$(\[{]|no:)[^\s\"',\]}]+)"
)
"""`-p password`; a port, a mapping of ports, a path or another flag is none."""
PROGRAM = re.compile(
    r"(?P<before>\b(?:sshpass|mysql\w*|mariadb\w*|ipmi\w*|redis-cli|ldap\w+|mongo\w*|snmp\w+|smbclient|kinit|7z|unzip)\b"
    rf"[^\n|;]{{0,1000}}?[\s\"']-(?:p|P|a|w){_BETWEEN}\\*[\"']?)(?!{SECRET_WORD})[^\s\"',\]}}-][^\s\"',\]}}]*",
    re.IGNORECASE,
)
"""Programs whose short flag is a password's, with or without a space, whatever it looks like."""


def without_told_secrets(text: str) -> str:
    """The text with every value behind a secret's name or flag replaced.

    >>> without_told_secrets("DB_PASS='a, b' and the password: one two")
    "DB_PASS='redacted-secret' and the password: redacted-secret"
    >>> without_told_secrets("curl -u ada:pw --token t0 x; tokens: 2048, token: 3, forward pass: 4 ms")
    'curl -u redacted-secret --token redacted-secret x; tokens: 2048, token: 3, forward pass: 4 ms'
    """
    for pattern in (USER_FLAG, PROGRAM, SHORT_FLAG):
        text = pattern.sub(_behind_flag, text)
    parts: list[str] = []
    done = place = 0
    while (found := KEY.search(text, place)) is not None:
        value = _value(text, found)
        if value is None:
            place = found.end("key")
            continue
        parts += [text[done : value.start("value")], SECRET_WORD]
        done, place = value.end("value"), value.end()
    return "".join([*parts, text[done:]])


def _behind_flag(found: re.Match[str]) -> str:
    quote = found.groupdict().get("quote") or ""
    return f"{found['before']}{quote}{SECRET_WORD}{quote}"


def _value(text: str, found: re.Match[str]) -> re.Match[str] | None:
    """The secret behind a name; None where there is none."""
    key, flag = found["key"], found["flag"]
    if not is_secret_key(key) or not _is_name(text, found):
        return None
    value = QUOTED.match(text, found.end()) or BLOCK.match(text, found.end())
    if value is None:
        several = (found["said"] or '"').strip()[0] in ":=" and PHRASES.search(key)
        value = (LINES[_open_quotes(text, found.start())] if several else WORD).match(text, found.end())
    if value is None or value["value"].startswith(SECRET_WORD) or not is_secret_value(key, value["value"]):
        return None
    if found["aside"] is not None and not _is_aside(key, value["value"]):
        return None
    if found["told"] is not None and NOT_TOLD.match(value["value"]):
        return None
    if key.startswith("-") and found["said"] is None and re.match(r"--?[A-Za-z]", value["value"]):
        return None
    if flag is None:
        return value
    return value if _is_behind_flag(key, flag, value["value"]) else None


def _open_quotes(text: str, place: int) -> str:
    """The quotes that are open at a place, by those before it in its line."""
    before = re.sub(r"\\.|(?<=\w)'(?=\w)", "", text[text.rfind("\n", 0, place) + 1 : place])
    return "".join(quote for quote in "\"'`" if before.count(quote) % 2)


def _is_behind_flag(key: str, space: str, value: str) -> bool:
    """Whether a word after mere space is the value of a name: the name is a flag, or the word has a digit."""
    if key.startswith("-"):
        return True
    if re.search(r"\n|\\n|,", space) or not re.search(r"\d", value) or re.fullmatch(r"[(\[]\d*", value):
        return False
    return not ("token" in key.lower() and re.fullmatch(r"[\d.,_]+", value))


def _is_aside(key: str, value: str) -> bool:
    """Whether a word in brackets behind a name is its value: it has digits, and more of them behind `token`."""
    least = 12 if "token" in key.lower() else 4
    return len(value) >= least and re.search(r"\d", value) is not None and "redacted-" not in value


def _is_name(text: str, found: re.Match[str]) -> bool:
    """Whether a word that may be everyday language stands as a name: `pass`, `token` in a list, `per token`."""
    key, before = found["key"], text[max(0, found.start() - 12) : found.start()]
    if found["pair"] and key == "token":
        return False
    if found["bar"] and not found["bar"].strip("|") and not key.isupper():
        return False
    if key == "token" and re.search(r"\bper\s+$", before):
        return False
    return key not in ALONE or found["said"] is None or not re.search(r"[A-Za-z]\s+$", before)
