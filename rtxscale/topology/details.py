"""`nvidia-smi -q`, keyed by the full path of headings: names move between drivers, so nothing is taken for granted.

Values stay text: `null_words.read_number` makes numbers of them. NVML is a better source.
Caller: imports of captures.
"""

from __future__ import annotations

from dataclasses import dataclass

from rtxscale.topology.matrix import clean_lines

_SEPARATOR = " : "


@dataclass(frozen=True, kw_only=True)
class Detail:
    """One value, its line, and the headings above it, outermost first."""

    path: tuple[str, ...]
    value: str
    line: int


@dataclass(frozen=True, kw_only=True)
class Details:
    """All values in the order of the text."""

    values: tuple[Detail, ...]

    def find(self, *path: str) -> str | None:
        """The first value whose path ends in these names, or None: an absent field is no error."""
        return next((detail.value for detail in self.values if detail.path[-len(path) :] == path), None)


def parse_details(text: str) -> Details:
    r"""Values of the text; never raises.

    >>> parse_details("Power Readings\n    Power Draw   : 60.06 W").find("Power Readings", "Power Draw")
    '60.06 W'
    """
    above: list[tuple[int, str]] = []
    values: list[Detail] = []
    for number, line in clean_lines(text):
        body = line.strip()
        if not body or body.startswith("="):
            continue
        indent = len(line) - len(line.lstrip())
        while above and above[-1][0] >= indent:
            above.pop()
        # A blank value leaves the separator at the end of the line.
        name, separator, value = f"{body} ".partition(_SEPARATOR)
        if separator:
            path = (*(heading for _, heading in above), name.strip())
            values.append(Detail(path=path, value=value.strip(), line=number))
        else:
            above.append((indent, body))
    return Details(values=tuple(values))
