"""Shapes by which private text is known: addresses, paths, secrets, and the places where names stand.

Only patterns, one a line of `redaction.redact`; each takes rather too much than too little. What looks alike and is not
private is left out by a condition here or by the function that replaces it. Hosts and users that only their
surroundings tell are in `redaction.name_shapes`.
"""

from __future__ import annotations

import re

ESCAPE = re.compile(r"\\(?:[bfnrt]|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|033)(?:\[[\d;]*m)?|\x1b\[[\d;]*[A-Za-z]")
"""An escape as text, or a terminal's."""

PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_END = r"\s\"'<>)\]},;\\"
URL = re.compile(
    rf"\b[A-Za-z][\w+.-]{{0,40}}://(?:(?:[^\[/{_END}]{{0,200}}@)?\[[0-9A-Fa-f:.%]{{2,60}}\][^{_END}]*|[^{_END}]+)"
    rf"|\bjdbc:[^{_END}]+|(?<![\w./@-])[A-Za-z][\w.-]{{0,60}}/[^/@{_END}]{{1,100}}@//[^{_END}]+"
)
"""Also with an address in brackets, and a database with its user and password in front."""

SECRET = re.compile(
    r"(?P<key>[\w.-]*(?:token(?!s\b|iz)|secret|passw(?:or)?d|passphrase|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|credential|cookie|authorization)[\w.-]*)"
    r"(?P<sign>\\?[\"']?(?:\s*[:=]\s*|\s+(?=\S*\d))\\?[\"']?(?:(?:bearer|basic)\s+)?)"
    r"(?P<value>(?!redacted-|(?:bearer|basic)\s)[^\s\"',;&}\])\\]+)",
    re.IGNORECASE,
)
"""`HF_TOKEN=...`, `"password": "..."`, `--api-key abc1`, `Authorization: Bearer ...`; not tokenizers, not `tokens`."""
SECRET = re.compile(
    r"\b(?:"
    r"(?:hf_|api_org_|gh[opusr]_|github_pat_|gl(?:pat|rt|dt|ptt|cbt|agent)-|sk-|xox[abceoprs]-|xapp-|nvapi-|AIza|ya29\.|npm_"
    r"|pypi-|dckr_(?:pat|oat)_|do[opr]_v1_|hv[sbr]\.|gsk_|GOCSPX-|tskey-|dapi(?=[0-9a-f]{32})|whsec_|shp(?:at|ca|pa|ss)_"
    r"|sg\.(?=[\w-]{16,}\.)|r8_|gl(?:sa|c)_|lin_api_|ntn_|figd_|rubygems_|sntry[us]_|pscale_(?:pw|tkn)_|xai-|pplx-|tvly-"
    r"|phc_|fw_|atlasv1\.|age-secret-key-|ops_ey|sq0(?:atp|csp)-|cfut_|vc[pkir]_|csk-|jina_|wandb_v1_)[\w.-]{12,}"
    r"|(?<!\\)[a-z]{2,8}_(?:live|test|prod|sandbox)_\w{8,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{12,}"
    r"|eyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?"
    r"|(?-i:(?=[A-Za-z0-9+/]{0,400}\d)(?=[A-Za-z0-9+/]{0,400}[a-z])(?=[A-Za-z0-9+/]{0,400}[A-Z])[A-Za-z0-9+/]{40,})"
    r")=*"
    r"|\bbearer\s+(?!redacted-)[\w.~+/=-]{8,}",
    re.IGNORECASE | re.ASCII,
)
"""Tokens of well-known services, JSON web tokens, and any long run of mixed letters and digits."""

EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+")

_PART = r"(?:[^\s/\"'`<>|:;,(){}\[\]\\*]|\\ )+"
_BELOW = rf"(?:{_PART}/)*{_PART}/?"
_NO_RATE = r"(?!\S*/(?:s|min|h|or|sec|step|GPU|gpu|W|J)\b|\S*\d/\d|and/or)"
_WORDS = rf"(?<!/)(?<!\.\w)(?<!\.\w\w)(?<!\.\w\w\w)(?<!\.\w\w\w\w)(?: {_NO_RATE}[\w.&+-]+){{1,3}}"
_GOES_ON = rf"(?:{_WORDS}(?<! \w)/{_BELOW})?"
"""More of a path behind a space in a name: up to three words, the last of which a slash follows."""
_OWN_GOES_ON = rf"(?:{_WORDS}/{_BELOW}){{0,4}}"
"""The same where people keep their files: also behind a word of one letter, and again."""
PATH = re.compile(
    rf"/(?:home|Users|root|export|mnt|scratch)/{_BELOW}{_OWN_GOES_ON}|(?<![\w./\\-])(?:~[\w.-]*)?/{_BELOW}{_GOES_ON}"
    rf"|(?<![\w./\\:-])//(?=[\w.-]{{2,100}}/){_BELOW}"
)
FLAG_PATH = re.compile(rf"(?<![^\s\"'=,(\[])(?P<before>-{{1,2}}[A-Za-z]{{1,12}})/{_BELOW}")
"""Behind a flag without a space, as `-I/opt/x`."""
VARIABLE_PATH = re.compile(rf"(?:\$\{{?\w+\}}?|%\w+%|(?<![\w./])\.\.)(?:[/\\]\.\.)*[/\\]{_BELOW}{_GOES_ON}")
"""Below a variable, or up from here."""
ENCODED_PATH = re.compile(r"(?<![^\s\"'<>])[^\s\"'<>]*%2F[^\s\"'<>]*", re.IGNORECASE)
QUOTED_PATH = re.compile(
    r"(?P<quote>(?<!\\)\\*[\"'`])(?P<path>(?:~[\w.-]*|\.\.|\$\{?\w+\}?)?/[^\"'`\n\\]+|[A-Za-z]:[\\/][^\"'\n]*)(?P=quote)"
)
WINDOWS_PATH = re.compile(r"(?<![\w])(?:[A-Za-z]:(?:\\+|/(?!/))|(?<!\\)\\\\+)(?=[^\s\"'<>|:;,\\])[^\s\"'<>|:;,]+")
KEPT_PATHS = ("/dev/", "/proc/", "/sys/")
"""The kernel's own names: the same on every machine."""
CLOSING_TAG = re.compile(r"(?<=<)/[A-Za-z]\w*>")
SITE_PACKAGE = re.compile(r"/(?:site|dist)-packages/([\w./+-]+)$")

BARE_ADDRESS = re.compile(
    r"(?P<before>\b(?:mac(?:[ _-]?addr(?:ess)?)?|hw(?:addr)?|ether|lladdr|(?:hardware|ethernet) address|guid)"
    r"\\?[\"']?\s*[:=]?\s*\\?[\"']?)(?:0x)?[0-9a-f]{12}(?:[0-9a-f]{4})?\b",
    re.IGNORECASE,
)
"""A MAC address or GUID without separators; without its name before it, it may be an id of ours."""
HARDWARE_ADDRESS = re.compile(
    r"(?<![\w:.-])(?:(?:[0-9a-f]{2}:){5,19}[0-9a-f]{2}|(?:[0-9a-f]{2}-){5,7}[0-9a-f]{2}|(?:[0-9a-f]{4}:){3}[0-9a-f]{4}"
    r"|[0-9a-f]{4}\.[0-9a-f]{4}\.[0-9a-f]{4})(?!\w|[:-]\w)",
    re.IGNORECASE,
)
"""MAC addresses in their usual spellings, and InfiniBand's longer ones."""
_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
IPV6 = re.compile(
    rf"(?:(?<![\w:.])|(?<=[g-z]:)|(?<=[g-z]\w:)|(?<=[g-z]\w\w:))(?:[0-9a-f]{{0,4}}:){{2,7}}(?:(?:{_OCTET}\.){{3}}{_OCTET}|[0-9a-f]{{1,4}})?(?!\w|:\w)",
    re.IGNORECASE,
)
"""Also with an IPv4 address for its last two groups."""
IPV4 = re.compile(rf"(?<![\w.])(?:{_OCTET}\.){{3}}{_OCTET}(?![\w]|\.\d)")

UUID = re.compile(
    r"\b(?:(?:GPU|MIG)-)?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?![\w])", re.IGNORECASE
)
LONG_HEX = re.compile(r"\b(?:0x)?[0-9a-f]{32,}\b", re.IGNORECASE)
_SERIAL_NAME = r"(?:serial(?:[ _-]?(?:number|no\.?|num))?|s/n|service[ _-]?tag|asset[ _-]?tag)"
_NO_SERIAL = r"(?!redacted-|(?:unknown|none|null|not|yes|no|true|false|port|console|share|work|part|number|run|link)\b)"
SERIAL = re.compile(
    rf"(?P<key>\b{_SERIAL_NAME}\\?[\"']?(?:\s*[:=#]\s*|\s+is\s+)\\?[\"']?){_NO_SERIAL}[\w-]{{4,}}"
    rf"|(?P<near>\b{_SERIAL_NAME}\\?[\"']?\s*\\?[\"']?)(?=[\w-]*\d)(?!redacted-)[\w-]{{4,}}"
    r"|(?<![\w.-])(?P<bare>[01]\d{12})(?!\w|\.\d)",
    re.IGNORECASE,
)
"""Behind its name, or the 13 digits that NVIDIA prints on boards. `bare` has no name before it."""

_NEVER_FILES = (
    "com|org|net|edu|gov|mil|int|biz|info|cloud|local|lan|internal|intranet|corp|home|localdomain|private|example|test"
    "|invalid|arpa"
)
_COUNTRIES = "ac|at|au|be|br|ca|ch|cn|cz|de|dk|es|eu|fi|fr|hk|il|in|it|jp|kr|mx|nl|no|nz|pl|pt|ru|se|sg|tr|tw|uk|us|za"
_LABELS = r"(?<![\w.@-])(?!redacted-)(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)"
_IN_DOMAIN = rf"(?:{_LABELS}+(?:{_NEVER_FILES})|{_LABELS}{{2,}}(?:{_COUNTRIES}))(?![\w-]|\.\w)"
BARE_URL = re.compile(rf"(?<![/-]){_IN_DOMAIN}(?::\d{{1,5}})?[/?][^{_END}]+", re.IGNORECASE)
"""A URL without `https://`."""
PRIVATE_HOST = re.compile(_IN_DOMAIN, re.IGNORECASE)
"""Names under a top-level domain that is no suffix of files or modules; under a country's, from three labels on."""
