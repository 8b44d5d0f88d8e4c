"""Which names stand in front of a secret, and which values behind them are none.

Pure words and conditions; `redaction.secret_text` looks for them in texts and `redaction.secret_places` in data.
"""

from __future__ import annotations

import re

SECRET_WORD = "redacted-secret"  # noqa: S105  # it stands for a secret
ALWAYS = re.compile(
    r"passw(?:or)?d|passphrase|passcode|passwort|kennwort|secret|credential|cookie|authorization|bearer"
    r"|(?:api|access|private|account|master|signing|encryption)[_ -]?key|connection[_ -]?string",
    re.IGNORECASE,
)
"""A name with one of these in it is a secret's, whatever stands around it."""
PHRASES = re.compile(
    r"pass(?!e)|pwd|phrase|passwort|kennwort|secret|credential|cookie|authorization|(?:^|[^a-z])pw$", re.IGNORECASE
)
"""Names whose values may have several words."""
HINT = r"pass|pwd|pw|phrase|kennwort|secret|credential|cookie|auth|bearer|token|key|connection|dsn|otp|pat(?![a-z])"
"""Something of this is in every secret's name: what is looked for first."""
_COUNTED = """
ids id type types count counts budget length len per max min num n size sizes limit dim embedding shape position
dtype index level eos bos pad unk cls sep mask special image audio class register next first last
"""
COUNTED = frozenset(_COUNTED.split())
"""Beside `token` they say that it is one of a text's, and no secret."""
_PASSES = """
forward backward first second last single per one two multi each this test
"""
OTHER_PASSES = frozenset(_PASSES.split())
_OTHER_KEYS = """
session sort primary foreign public cache group dict config env cell record row attention query value state pool
partition index map join object param parameter store metric node weight layer unknown known missing any extra of
nvml user duplicate wrong trial
"""
OTHER_KEYS = frozenset(_OTHER_KEYS.split())
NO_PASS = ("bypass", "compass", "lowpass", "highpass", "bandpass", "surpass")
ALONE = frozenset(("pass", "pw", "pwd", "auth"))
_PATTERNS = """
file name path glob regex search match include exclude ignore url test dir
"""
PATTERNS = frozenset(_PATTERNS.split())
"""Before `pat` they say that it is a pattern, and no personal access token."""
_HARMLESS = """
none null nil true false yes no on off unknown unset empty missing required optional invalid expired auto default
n/a
"""
HARMLESS = frozenset(_HARMLESS.split()) | {"", "not applicable", "not set"}
LONGEST_COUNT = 5
"""Digits of a number behind `token` up to which it is a count."""


def words_of(name: str) -> list[str]:
    """The words of a name in small letters, however they are joined; numbers left out.

    >>> words_of("HFToken_2"), words_of("--db-pass"), words_of("workload.options.apiKey")
    (['hf', 'token'], ['db', 'pass'], ['workload', 'options', 'api', 'key'])
    """
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def is_secret_key(name: str) -> bool:
    """Whether what stands behind this name is a secret.

    >>> [is_secret_key(name) for name in ("DB_PASS", "hf.token", "OPENAI_KEY", "AccountKey", "GITHUB_PAT", "MYSQL_PWD")]
    [True, True, True, True, True, True]
    >>> [is_secret_key(name) for name in ("tokenizer", "tokens", "max_token", "forward_pass", "session_key", "author")]
    [False, False, False, False, False, False]
    """
    words = words_of(name)
    if not words:
        return False
    if ALWAYS.search(name):
        return True
    last, before = words[-1], words[-2:-1]
    if any(word.endswith("token") for word in words):
        return not COUNTED & set(words)
    if last.endswith("pass"):
        return not last.endswith(NO_PASS) and not OTHER_PASSES & set(before)
    if last == "key":
        return bool(before) and before[0] not in OTHER_KEYS
    if last == "pat":
        return not PATTERNS & set(before) and (bool(before) or name.isupper())
    return last.endswith(("pwd", "auth")) or last in ("pw", "apikey", "sas", "dsn", "otp")


def is_secret_value(name: str, value: str) -> bool:
    """Whether a value behind a secret's name is one: not a word that says there is none, not a small count of tokens.

    >>> is_secret_value("password", "4711"), is_secret_value("token", "2048"), is_secret_value("token", "40718823")
    (True, False, True)
    """
    value = value.strip()
    if value.lower().strip(".!") in HARMLESS:
        return False
    if ALWAYS.search(name) or "token" not in name.lower() or not re.fullmatch(r"[\d.,_]+", value):
        return True
    return value.isdigit() and len(value) > LONGEST_COUNT
