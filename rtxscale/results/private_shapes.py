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
    r"|(?-i:(?=[A-Za-z0-9+/]*\d)(?=[A-Za-z0-9+/]*[a-z])(?=[A-Za-z0-9+/]*[A-Z])[A-Za-z0-9+/]{40,})"
    r")=*"
    r"|\bbearer\s+(?!redacted-)[\w.~+/=-]{8,}",
    re.IGNORECASE | re.ASCII,
)
"""Tokens of well-known services, JSON web tokens, and any long run of mixed letters and digits."""

EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
USER_AT_HOST = re.compile(r"\b(?!redacted-)([A-Za-z_][\w.-]*)@(?!redacted-)([A-Za-z0-9][\w.-]*)")

_PART = r"(?:[^\s/\"'`<>|:;,(){}\[\]\\*]|\\ )+"
_BELOW = rf"(?:{_PART}/)*{_PART}/?"
_NO_RATE = r"(?!\S*/(?:s|min|h|or|sec|step|GPU|gpu|W|J)\b|\S*\d/\d|and/or)"
_GOES_ON = (
    rf"(?:(?<!/)(?<!\.\w)(?<!\.\w\w)(?<!\.\w\w\w)(?<!\.\w\w\w\w)(?: {_NO_RATE}[\w.&+-]+){{1,3}}(?<! \w)/{_BELOW})?"
)
"""More of a path behind a space in a name: up to three words, the last of which a slash follows."""
PATH = re.compile(
    rf"(?<![\w./\\-])(?:~[\w.-]*)?/{_BELOW}{_GOES_ON}|/(?:home|Users|root|export|mnt|scratch)/{_BELOW}{_GOES_ON}"
)
FLAG_PATH = re.compile(rf"(?<![^\s\"'=,(\[])(?P<before>-{{1,2}}[A-Za-z]{{1,12}})/{_BELOW}")
"""Behind a flag without a space, as `-I/opt/x`."""
VARIABLE_PATH = re.compile(rf"(?:\$\{{?\w+\}}?|%\w+%|(?<![\w./])\.\.)(?:[/\\]\.\.)*[/\\]{_BELOW}")
"""Below a variable, or up from here."""
ENCODED_PATH = re.compile(r"(?<![^\s\"'<>])[^\s\"'<>]*%2F[^\s\"'<>]*", re.IGNORECASE)
QUOTED_PATH = re.compile(r"(?P<quote>[\"'])(?P<path>(?:~[\w.-]*)?/[^\"'\n\\]*|[A-Za-z]:[\\/][^\"'\n]*)(?P=quote)")
WINDOWS_PATH = re.compile(r"(?<![\w])(?:[A-Za-z]:(?:\\+|/(?!/))|\\\\+)[^\s\"'<>|:;,]+")
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
IPV6 = re.compile(
    r"(?<![\w:.])(?:[0-9a-f]{0,4}:){2,7}(?:[0-9a-f]{1,4}|(?:\d{1,3}\.){3}\d{1,3})?(?!\w|:\w)", re.IGNORECASE
)
_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
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

HOME_OF = re.compile(r"(?:/home/|/Users/|\\+Users\\+)([^\s/\\\"'`<>|:;,(){}\[\]=*]+)")
TILDE_OF = re.compile(r"~(?=[A-Za-z])([^\s/\\\"'`<>|:;,(){}\[\]=*]+)")
USER_OF = re.compile(r"\b(?:USER|LOGNAME|USERNAME)\\?[\"']?\s*[:=]\s*\\?[\"']?([\w.-]+)")
HOST_OF = re.compile(r"\b(?:[Hh]ost_?[Nn]ame|HOSTNAME|HOST|SLURMD_NODENAME)\\?[\"']?\s*[:=]\s*\\?[\"']?([\w.-]+)")
_NAME = r"[\"']?(?P<name>[A-Za-z0-9](?:[\w.-]*\w)?)"
_NO_NAME = (
    r"(?!redacted-|(?:the|a|an|is|are|was|and|or|of|to|on|in|at|by|for|from|memory|name|key|not|that|this|which|with"
    r"|input|code|defined|space|mode|id|ids|itself|said|says|asked|asks|must|may|can|cannot|error|request|process|side"
    r"|port|bound|time|would|should|could|will|has|had|did|does|who|when|where|if|there|then|here"
    r"|driver|software|clock|data|agent|interface|group|groups|account|function)\b)"
)
HOST_SAID = re.compile(
    r"(?P<before>\b(?:connect|reach|resolv|rout|login|log(?:ged)? in|lookup|look up|refused|lost|ssh|contact|ping)\w*"
    r"(?: (?:to|by|from|on|with|the|of))*(?: the)? (?:host(?:name)?|server|machine) )"
    rf"{_NO_NAME}{_NAME}",
    re.IGNORECASE,
)
HOST_PORT = re.compile(
    r"(?P<before>\b(?:to|reach|at|from|host|on|by|with|ssh|ping|resolve) )"
    r"[\"']?(?!redacted-)(?P<name>(?=[\w.-]*[A-Za-z])(?=[\w.-]*[\d.-])[A-Za-z0-9][\w.-]*\w)[\"']?"
    r"(?=:\d{2,5}\b(?![:.]\d)| ?\(?port:? \d)",
    re.IGNORECASE,
)
"""What is said to be connected to, with its port."""
DOTTED_PORT = re.compile(
    r"(?P<before>(?<![\w./@-]))(?!redacted-)(?P<name>(?:[a-z0-9][a-z0-9-]*\.)+(?!(?:py|pyx|cc|cpp|cxx|cu|cuh|c|h|hpp|so|yaml|yml|json|md"
    r"|txt|log|rs|go|toml|lock|csv|html|js|ts|sh|ipynb|parquet|zip|lua|java|pyc|ptx|cubin|cfg|ini|out|err):)"
    r"[a-z][a-z0-9-]+)(?=:\d{4,5}\b(?![:.]\d))",
    re.IGNORECASE,
)
"""Labels with dots and a port; a source file and its line is none."""
USER_SAID = re.compile(
    r"(?P<before>\b(?:as|for|by|invalid|unknown|authenticated?|su|sudo|login) user(?:name)?:? |\blogged in as "
    rf"|\blog(?:ged|ging)? in (?:as )?user(?:name)?:? |\bsu -l? ?)(?!user\b){_NO_NAME}{_NAME}",
    re.IGNORECASE,
)
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
