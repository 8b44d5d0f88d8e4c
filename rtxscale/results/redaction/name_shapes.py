"""Shapes in which texts name hosts and users: what PyTorch, NCCL, Ray, Slurm, ssh and Linux write around a name.

Only patterns, each with the name in its group `name`. `redaction.redact` replaces it there, `redaction.private_names`
looks for it in the other texts of a run. Every part that may repeat is bounded, so that no text takes long.
"""

from __future__ import annotations

import re

_HOST = r"(?=[\w.-]{0,200}?[A-Za-z])(?!0x)[A-Za-z0-9](?:[\w.-]{0,200}[A-Za-z0-9])?"
"""Letters, digits, dots and dashes with a letter among them: no number, no address in memory."""
_MARKED = r"(?=[\w.-]{0,200}?[A-Za-z])(?=[\w.-]{0,200}?[\d.-])(?!0x)[A-Za-z0-9][\w.-]{0,200}[A-Za-z0-9]"
"""The same with a digit, dot or dash: less likely to be a word of a sentence."""
_HOSTS = r"(?=[\w.-]{0,200}?[A-Za-z])(?!0x)[A-Za-z0-9][\w.-]{0,200}(?:\[[\d,-]{1,200}\])?"
_LIST = rf"{_HOSTS}(?:,(?!\w{{1,40}}=){_HOSTS}){{0,200}}(?<![.,-])"
"""Several hosts, as Slurm writes them: `tron[01-04],flynn`."""
_USER = r"[A-Za-z_](?:[\w.-]{0,62}\w)?"
_QUOTE = r"\\*[\"'`]?"
_IS = rf"(?:{_QUOTE}[ \t]*=[ \t]*|\\*[\"'`][ \t]*:[ \t]*){_QUOTE}"
"""`key=value`, or `"key": "value"` as JSON and Python write it."""
_VALUE = (
    r"(?!redacted-|(?i:(?:true|false|none|null|nil|yes|no|on|off|auto|default|unknown|unset|any|all|self|cls|args?|kwargs"
    r"|str|int|float|bool|bytes|object|list|dict|tuple|set|optional|string|number|value|os|socket|config|options?"
    r"|dim|broadcasthost|port|of|every|each|(?:\w{0,60}_)?(?:host|hostname|addr|address|endpoint|node|port|name|user)"
    r"|[a-f]{0,2}\d{0,3})(?![\w-]))|[\w.]{0,200}\("
    r"|(?:self|cls|os|pl|np|re|ray|torch|socket|args|params|config|spec)\."
    r"|[\w.]{1,200}\.(?:\w{0,60}_\w{0,60}|hosts?|hostname|addr|address|endpoint|ip|get|nodes?|name|user)\b)"
)
"""No value that says nothing, and no expression of a program."""
_NO_NAME = (
    r"(?!redacted-|(?:the|a|an|is|are|was|and|or|of|to|on|in|at|by|for|from|memory|name|key|not|that|this|which|with"
    r"|input|code|defined|space|mode|id|ids|itself|said|says|asked|asks|must|may|can|cannot|error|request|process|side"
    r"|port|bound|time|would|should|could|will|has|had|did|does|who|when|where|if|there|then|here"
    r"|driver|software|clock|data|agent|interface|group|groups|account|function"
    r"|each|every|all|any|both|our|your|their|its|database|db|ipmi|bmc|redfish|registry|meter|access|user)\b)"
)
_NAME = r"[\"']?(?P<name>[A-Za-z0-9](?:[\w.-]*\w)?)"

HOME_OF = re.compile(r"(?:/home/|/Users/|\\+Users\\+)([^\s/\\\"'`<>|:;,(){}\[\]=*]+)")
TILDE_OF = re.compile(r"~(?=[A-Za-z])([^\s/\\\"'`<>|:;,(){}\[\]=*]+)")
USER_AT_HOST = re.compile(r"\b(?!redacted-)([A-Za-z_][\w.-]{0,100})@(?!redacted-)([A-Za-z0-9][\w.-]*)")

USER_VARIABLE = re.compile(
    rf"(?<![\w.])(?:[A-Z0-9]{{1,20}}_){{0,4}}(?:USER|LOGNAME|USERNAME|USER_NAME){_QUOTE}[ \t]*[:=][ \t]*{_QUOTE}"
    rf"{_VALUE}(?P<name>{_USER})"
)
HOST_VARIABLE = re.compile(
    rf"(?<![\w.])(?:(?:[A-Z0-9]{{1,20}}_){{0,4}}(?:HOST_?NAME|HOST|NODE_?NAME|(?:MASTER|HEAD|NODE)_(?:IP_?)?ADDR(?:ESS)?)"
    rf"|[Hh]ost_?[Nn]ame|SLURMD_NODENAME){_QUOTE}[ \t]*[:=][ \t]*{_QUOTE}{_VALUE}(?P<name>{_HOST})"
)
"""Variables of the environment that hold nothing but a name."""
NCCL_PREFIX = re.compile(r"(?:^|[\s\x00>\"'(|])(?!redacted-)(?P<name>[A-Za-z0-9][\w.-]*):\d+:\d+ \[\d+\]", re.MULTILINE)
WALL_METER = re.compile(
    rf"\bwall_power(?:\.address{_QUOTE}|{_QUOTE}[ \t]*:[^}}]{{0,400}}?\baddress{_QUOTE})"
    rf"[ \t]*[:=][ \t]*(?:found |(?!found )){_QUOTE}(?:https?://|(?!https?:))(?!redacted-)(?P<name>{_HOST})"
)
"""The address of a sweep's power meter, in YAML, JSON or a message."""
HOSTS_SURE = (HOST_VARIABLE, NCCL_PREFIX, WALL_METER)
USERS_SURE = (USER_VARIABLE,)

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
PEER_PORT = re.compile(
    r"\b(?:socket|peer|endpoint|server|remote|master|rendezvous|tcp|sockaddr|address)"
    rf"(?: ?[:=] ?| (?:to |at |is )?)[\"']?(?!redacted-)(?P<name>{_HOST})(?=:\d{{4,5}}(?!\w|[:.-]\w))",
    re.IGNORECASE,
)
DOTTED_PORT = re.compile(
    r"(?P<before>(?<![\w./@-]))(?!redacted-)(?P<name>(?:[a-z0-9][a-z0-9-]*\.)+(?!(?:py|pyx|cc|cpp|cxx|cu|cuh|c|h|hpp|so|yaml|yml|json|md"
    r"|txt|log|rs|go|toml|lock|csv|html|js|ts|sh|ipynb|parquet|zip|lua|java|pyc|ptx|cubin|cfg|ini|out|err):)"
    r"[a-z][a-z0-9-]+)(?=:\d{4,5}\b(?![:.]\d))",
    re.IGNORECASE,
)
"""Labels with dots and a port; a source file and its line is none."""
BRACKET_PORT = re.compile(
    r"(?<![\w\])])\[(?!redacted-|(?:rank|default|worker|step|gpu|cuda|epoch|info|warn|error|debug)\w*\])"
    rf"(?P<name>{_HOST})\](?=:\d{{4,5}}(?!\w|[:.-]\w))",
    re.IGNORECASE,
)
"""`[tron]:29500`, as PyTorch writes a peer."""
PAIR_PORT = re.compile(
    r"(?:\b(?:connect|address|listen|bind|bound|resolv|reach|socket|network)\w{0,12} (?:\w{1,12} )?"
    r"(?:to|of|with|at|on|from|for) \("
    rf"|\b(?:connect\w{{0,5}}|bind|[lr]?addr|address|sockaddr)[ =:]{{0,3}}\({{1,2}}(?=[\\\"'])){_QUOTE}"
    rf"(?!redacted-)(?P<name>{_HOST})(?={_QUOTE}, ?\d{{4,5}}\))"
    rf"|(?<=\()(?!redacted-)(?P<also>{_HOST})(?={_QUOTE}, ?\d{{2,5}}\) (?:cannot|could not|failed|timed|refused))",
    re.IGNORECASE,
)
"""`(tron, 29500)`, as PyTorch and Python write an address."""
ANGLE_PORT = re.compile(
    rf"(?<![\w.:/-])(?!redacted-)(?P<name>{_HOST})(?=<\d{{5}}>)|(?<=[a-z]\d:)(?!redacted-)(?P<also>{_HOST})(?=<\d{{1,5}}>)"
)
"""`tron<40923>`, as NCCL writes a peer."""
HOST_KEY = re.compile(
    rf"(?<![\w.-])(?:[\w-]{{1,60}}[_.-])?(?:hosts?|host_?names?|fqdn|node_?names?|node_?list|ip|(?:ip_?)?addr(?:ess)?"
    rf"|endpoint|comm_id){_IS}{_VALUE}(?P<name>{_LIST})",
    re.IGNORECASE,
)
MARKED_KEY = re.compile(
    rf"(?<![\w.-])(?:(?:server|peer|remote|master|node|bmc){_IS}|(?:host|server|machine)[ \t]*:[ \t]*)"
    rf"{_VALUE}(?P<name>{_MARKED})",
    re.IGNORECASE,
)
HOST_LINE = re.compile(
    rf"(?<![\w.-])host(?:[ \t]{{2,40}}:[ \t]+|:[ \t]*(?=\\*[\"'`])){_QUOTE}{_VALUE}(?P<name>{_HOST})"
    rf"|\b(?:on|at|from|of) (?:host|node|machine) {_QUOTE}(?!redacted-)(?P<also>{_MARKED})"
)
"""As torchrun's table of failures has it, and as logs say it."""
HOST_FLAG = re.compile(
    rf"(?<![\w-])(?:--(?:[a-z]{{1,20}}[_-])?(?:hosts?|host-?name|addr(?:ess)?|endpoint|nodelist|server)"
    rf"|\b(?:ipmi\w{{0,20}}|mpi(?:run|exec)|pdsh)\b[^\n|;]{{0,200}}?[\s\"']-[Hw])"
    rf"(?:{_QUOTE}[ \t]*[,=][ \t]*{_QUOTE}{_VALUE}(?P<name>{_LIST})|[ \t]+{_QUOTE}{_VALUE}(?P<also>{_MARKED}))",
)
REMOTE_PATH = re.compile(
    r"(?<![\w./@\\%$~-])(?!redacted-|(?:\w{0,40}(?:path|file|dir|directory|error|exception|warning)|bin|lib|lib64|jar|data"
    r"|home|root|url|uri|at|in|from|to|cwd|exec|python|\w{1,40}\.(?:py|sh|yaml|yml|json|so)):)"
    rf"(?:(?P<name>{_MARKED})(?=:/[\w.~+-])"
    r"|(?P<also>[A-Za-z][\w.-]{0,200}[A-Za-z0-9])(?=:/(?:[\w.~+-]+/|(?:exports?|mnt|home|srv|vol|data|scratch|nfs|nas|ifs"
    r"|shares?|pool|storage)\b)))",
    re.IGNORECASE,
)
"""`fileserver:/export/x`, as mounts and copies name a path of another machine."""
SLURM = re.compile(
    r"\b(?:srun|slurmstepd|slurmd|salloc|sbatch|pdsh|pdcp): (?:error: |fatal: |warning: )?"
    r"(?!redacted-|(?:error|fatal|warning|spank|cgroup|task|auth|mpi|job|plugin|aborting|exiting|debug|info)\b)"
    r"(?P<name>(?=[\w.-]{0,200}?[A-Za-z])[A-Za-z0-9][A-Za-z0-9.-]{0,200}(?:\[[\d,-]{1,200}\])?)(?=: )"
    rf"|\bON (?!redacted-)(?P<also>{_HOST})(?= CANCELLED)"
)
UNKNOWN_HOST = re.compile(
    r"(?<![\w./-])(?!redacted-|(?:\w{0,20}(?:connect|socket|getaddrinfo|gethostbyname|resolve|lookup|error|failed)|bind|ssh"
    r"|curl|ping|wget|send|recv|hostname|host|ip|message|reason):)"
    rf"(?P<name>{_HOST})(?=: (?:Name or service not known|Temporary failure in name|nodename nor servname|Unknown host"
    r"|Host is (?:down|unreachable)))",
    re.IGNORECASE,
)
SYSLOG = re.compile(
    r"(?:\b[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"
    r"|\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)) (?!redacted-)"
    rf"(?P<name>{_HOST})(?= (?:kernel|systemd|sshd|sudo|[\w./-]{{1,40}}\[\d{{1,9}}\])(?:\[\d{{1,9}}\])?: )"
)
UNAME = re.compile(rf"\bLinux (?!redacted-|version\b|kernel\b|\d)(?P<name>{_HOST})(?= \d{{1,2}}\.\d{{1,3}}\.\d)")
ELASTIC_NODE = re.compile(r"\bnode '(?!redacted-)(?P<name>[A-Za-z0-9][\w.-]{0,200}?)(?=_\d{1,9}_\d{1,9}')")
HOSTS_SAID = (
    *(
        HOST_SAID,
        HOST_PORT,
        PEER_PORT,
        DOTTED_PORT,
        BRACKET_PORT,
        PAIR_PORT,
        ANGLE_PORT,
        HOST_KEY,
        MARKED_KEY,
        HOST_LINE,
    ),
    *(HOST_FLAG, REMOTE_PATH, SLURM, UNKNOWN_HOST, SYSLOG, UNAME, ELASTIC_NODE),
)

USER_SAID = re.compile(
    r"(?P<before>\b(?:as|for|by|invalid|unknown|authenticated?|su|sudo|login) user(?:name)?:? |\blogged in as "
    rf"|\blog(?:ged|ging)? in (?:as )?user(?:name)?:? |\bsu -l? ?|\bpassword (?:for|of) )(?!user\b){_NO_NAME}{_NAME}",
    re.IGNORECASE,
)
USER_KEY = re.compile(
    rf"(?<![\w.-])(?:\w{{1,60}}_)?(?:user(?:[_ ]?(?:name|id))?|log(?:in|name)|uid){_IS}{_VALUE}(?P<name>{_USER})",
    re.IGNORECASE,
)
USER_ID = re.compile(
    r"(?:\b[erfs]?[ug]id=|\bgroups=|(?<=\),))\d{1,10}\("
    r"(?!redacted-|(?:root|sudo|adm|wheel|cdrom|floppy|dip|plugdev|lpadmin|video|render|audio|staff|lxd|dialout|nogroup"
    rf"|docker|daemon|sys|bin|disk|lp|tty|input|kvm|libvirt|netdev|sambashare)\))(?P<name>{_USER})(?=\))"
)
"""`uid=1001(ada)`, as `id` prints it."""
USERS_SAID = (USER_SAID, USER_KEY, USER_ID)


def told(pattern: re.Pattern[str], text: str) -> set[str]:
    """The names that a pattern finds in a text; of a list of hosts, each.

    >>> sorted(told(HOST_KEY, "hosts=tron[07-09,11],flynn and ip=10.0.0.1"))
    ['flynn', 'tron07', 'tron08', 'tron09', 'tron11']
    """
    return {name for found in pattern.finditer(text) for name in expanded(found[place_of(found)])}


def place_of(found: re.Match[str]) -> str:
    """The group in which the name stands."""
    return "also" if found.groupdict().get("also") is not None else "name"


MOST = 1000
"""Most hosts that one list stands for."""
RANGE = re.compile(r"([\w.-]*)\[([\d,-]+)\]")


def expanded(hosts: str) -> list[str]:
    """The hosts of a list with ranges, as Slurm writes it; a name alone is itself."""
    names = re.sub(r"[\w.-]*\[[\d,-]+\]", "", hosts).split(",")
    for stem, ranges in RANGE.findall(hosts):
        for one in ranges.split(","):
            if (ends := re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", one)) is not None:
                start, end = int(ends[1]), int(ends[2] or ends[1])
                names += [f"{stem}{number:0{len(ends[1])}d}" for number in range(start, min(end + 1, start + MOST))]
    return [name for name in names if name]
