"""Shapes by which private text is known: addresses, paths, secrets, and the places where names stand.

Only patterns, one a line of `results.redact`; each takes rather too much than too little. What looks alike and is not
private is left out by a condition here or by the function that replaces it.
"""

from __future__ import annotations

import re

ESCAPE = re.compile(r"\\(?:[bfnrt]|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|033)(?:\[[\d;]*m)?|\x1b\[[\d;]*[A-Za-z]")
"""An escape as text, or a terminal's."""

PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
URL = re.compile(r"\b[A-Za-z][\w+.-]*://[^\s\"'<>)\]},;\\]+")

KEYED_SECRET = re.compile(
    r"(?P<key>[\w.-]*(?:token(?!s\b|iz)|secret|passw(?:or)?d|passphrase|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|credential|cookie|authorization)[\w.-]*)"
    r"(?P<sign>\\?[\"']?(?:\s*[:=]\s*|\s+(?=\S*\d))\\?[\"']?(?:(?:bearer|basic)\s+)?)"
    r"(?P<value>(?!redacted-|(?:bearer|basic)\s)[^\s\"',;&}\])\\]+)",
    re.IGNORECASE,
)
"""`HF_TOKEN=...`, `"password": "..."`, `--api-key abc1`, `Authorization: Bearer ...`; not tokenizers, not `tokens`."""
SECRET = re.compile(
    r"\b(?:"
    r"(?:hf_|gh[opusr]_|github_pat_|glpat-|sk-|xox[abeprs]-|nvapi-|AIza|ya29\.|npm_|pypi-|dckr_pat_)[\w.-]{12,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{12,}"
    r"|eyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?"
    r"|(?-i:(?=[A-Za-z0-9+/]*\d)(?=[A-Za-z0-9+/]*[a-z])(?=[A-Za-z0-9+/]*[A-Z])[A-Za-z0-9+/]{40,})"
    r")=*"
    r"|\bbearer\s+(?!redacted-)[\w.~+/=-]{8,}",
    re.IGNORECASE | re.ASCII,
)
"""Tokens of well-known services, JSON web tokens, and any long run of mixed letters and digits."""

EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
USER_AT_HOST = re.compile(r"\b(?!redacted-)([A-Za-z_][\w.-]*)@(?!redacted-)([A-Za-z0-9][\w.-]*)")

_PART = r"[^\s/\"'`<>|:;,(){}\[\]\\=*]+"
PATH = re.compile(
    rf"(?<![\w./\\-])(?:~[\w.-]*)?/(?:{_PART}/)*{_PART}/?|/(?:home|Users|root|export|mnt|scratch)/(?:{_PART}/)*{_PART}/?"
)
QUOTED_PATH = re.compile(r"(?P<quote>[\"'])(?P<path>(?:~[\w.-]*)?/[^\"'\n\\]*|[A-Za-z]:[\\/][^\"'\n]*)(?P=quote)")
WINDOWS_PATH = re.compile(r"(?<![\w])(?:[A-Za-z]:(?:\\+|/(?!/))|\\\\+)[^\s\"'<>|:;,]+")
KEPT_PATHS = ("/dev/", "/proc/", "/sys/")
"""The kernel's own names: the same on every machine."""
CLOSING_TAG = re.compile(r"(?<=<)/[A-Za-z]\w*>")
SITE_PACKAGE = re.compile(r"/(?:site|dist)-packages/([\w./+-]+)$")

HARDWARE_ADDRESS = re.compile(
    r"(?<![\w:.-])(?:(?:[0-9a-f]{2}:){5,19}[0-9a-f]{2}|(?:[0-9a-f]{2}-){5,7}[0-9a-f]{2}|(?:[0-9a-f]{4}:){3}[0-9a-f]{4}"
    r"|[0-9a-f]{4}\.[0-9a-f]{4}\.[0-9a-f]{4})(?!\w|[:-]\w)",
    re.IGNORECASE,
)
"""MAC addresses in their usual spellings, and InfiniBand's longer ones."""
IPV6 = re.compile(
    r"(?<![\w:.])(?:[0-9a-f]{0,4}:){2,7}(?:[0-9a-f]{1,4}|(?:\d{1,3}\.){3}\d{1,3})?(?!\w|:\w)", re.IGNORECASE
)
_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
IPV4 = re.compile(rf"(?<![\w.])(?:{_OCTET}\.){{3}}{_OCTET}(?![\w]|\.\d)")

UUID = re.compile(
    r"\b(?:(?:GPU|MIG)-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?![\w])", re.IGNORECASE
)
LONG_HEX = re.compile(r"\b(?:0x)?[0-9a-f]{32,}\b", re.IGNORECASE)
SERIAL = re.compile(
    r"(?P<key>\b(?:serial(?:[ _-]?(?:number|no\.?|num))?|s/n|service[ _-]?tag|asset[ _-]?tag)"
    r"\\?[\"']?\s*[:=#]?\s*\\?[\"']?)(?=[\w-]*\d)(?!redacted-)[\w-]{4,}"
    r"|(?<![\w.-])(?P<bare>[01]\d{12})(?!\w|\.\d)",
    re.IGNORECASE,
)
"""Behind its key, or the 13 digits that NVIDIA prints on boards. `bare` has no key."""

HOME_OF = re.compile(r"(?:/home/|/Users/|\\+Users\\+|~(?=[A-Za-z]))([^\s/\\\"'`<>|:;,(){}\[\]=*]+)")
USER_OF = re.compile(r"\b(?:USER|LOGNAME|USERNAME)\\?[\"']?\s*[:=]\s*\\?[\"']?([\w.-]+)")
HOST_OF = re.compile(r"\b(?:[Hh]ost_?[Nn]ame|HOSTNAME|HOST|SLURMD_NODENAME)\\?[\"']?\s*[:=]\s*\\?[\"']?([\w.-]+)")
NCCL_PREFIX = re.compile(r"(?:^|[\s\x00>])([A-Za-z0-9][\w.-]*):\d+:\d+ \[\d+\]", re.MULTILINE)

_NEVER_FILES = (
    "com|org|net|edu|gov|mil|int|biz|info|cloud|local|lan|internal|intranet|corp|home|localdomain|private|example|test"
    "|invalid|arpa"
)
_COUNTRIES = "ac|at|au|be|br|ca|ch|cn|cz|de|dk|es|eu|fi|fr|hk|il|in|it|jp|kr|mx|nl|no|nz|pl|pt|ru|se|sg|tr|tw|uk|us|za"
PRIVATE_HOST = re.compile(
    rf"(?<![\w.@-])(?!redacted-)(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+(?:{_NEVER_FILES})(?![\w-]|\.\w)"
    rf"|(?<![\w.@-])(?!redacted-)(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.){{2,}}(?:{_COUNTRIES})(?![\w-]|\.\w)",
    re.IGNORECASE,
)
"""Names under a top-level domain that is no suffix of files or modules; under a country's, from three labels on."""
