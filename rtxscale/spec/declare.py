"""What software cannot see, declared by the person who publishes: cooler, power supply, slots, air, price, dataset.

Every field starts as `unknown`; `not applicable` is an answer too. `template` is the file to fill in, made from these
fields, `load_declaration` reads it back with every fault at once. Called by `cli.dossier` and `report.dossier.record`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError
from pydantic.fields import FieldInfo

from rtxscale.errors import SpecError
from rtxscale.spec.document import Document, parse_document
from rtxscale.spec.load import read_text
from rtxscale.spec.phrases import expected_value, found_value, hint, nearest
from rtxscale.spec.section import PositiveFloat, Section

UNKNOWN, NOT_APPLICABLE = "unknown", "not applicable"

Words = Annotated[str, Field(min_length=1, max_length=500, pattern=r"\S")]
Said = Literal["unknown", "not applicable"]
Text = Said | Words
Number = Said | PositiveFloat
Celsius = Said | Annotated[float, Field(ge=-60, le=80, allow_inf_nan=False)]
Cooler = Said | Literal["blower", "open-air", "flow-through", "liquid", "passive"]

WRITTEN_AS = "declare.yaml"


class Platform(Section):
    """The machine around the GPUs."""

    cooler: Cooler = Field("unknown", description="Of the cards: blower, open-air, flow-through, liquid, passive.")
    board_partner: Text = Field("unknown", description="Maker and exact model of the cards, as on the box.")
    memory_configuration: Text = Field("unknown", description="Host memory: modules, channels, speed, ECC.")
    pcie_slots: Text = Field("unknown", description="Which slot, lanes and riser each card sits in.")
    switches: Text = Field("unknown", description="PCIe switches and which cards hang on them.")
    storage: Text = Field("unknown", description="Drives that hold system and data.")
    chassis: Text = Field("unknown", description="Case or rack unit.")
    chassis_airflow: Text = Field("unknown", description="Fans, their direction, and what is in the way.")
    inlet_c: Celsius = Field("unknown", description="Temperature of the air that goes in while measuring, in degC.")
    psu_w: Number = Field("unknown", description="Rating of all power supplies together, in W.")
    psu: Text = Field("unknown", description="Make and number of power supplies, connectors, efficiency class.")
    ai_enterprise: Text = Field("unknown", description="Version of NVIDIA AI Enterprise, if it is installed.")


class Conditions(Section):
    """What was done to clocks and power."""

    overclock: Text = Field("unknown", description="Changes of clock, voltage, fan curve or firmware; none if stock.")
    locked_clocks: Text = Field("unknown", description="Clocks locked by nvidia-smi or a tool; none if not.")
    numa_binding: Text = Field("unknown", description="Binding of processes to NUMA nodes; none if left to the system.")
    other_load: Text = Field("unknown", description="What else ran on the machine while measuring; none if nothing.")


class WallPower(Section):
    """Power at the wall, over the same steady state as the measured windows."""

    wall_w: Number = Field("unknown", description="Mean power at the wall while the windows were measured, in W.")
    meter: Text = Field("unknown", description="Which meter, and its accuracy.")
    scope: Text = Field("unknown", description="What hangs behind the meter, and over which time it was read.")


class Price(Section):
    """The price really billed or paid, never a list price."""

    per_hour: Number = Field(
        "unknown", description="Price of one whole machine for one hour, in `currency`; each one used is billed."
    )
    currency: Text = Field("unknown", description="Such as EUR or USD.")
    basis: Text = Field("unknown", description="What was billed: invoice and period, or purchase over which years.")
    purchase: Number = Field("unknown", description="Price paid for one machine, if no hour is billed, in `currency`.")
    hours_of_use: Number = Field("unknown", description="Hours under load over which the purchase is spread.")
    per_kwh: Number = Field("unknown", description="Price of a kWh, where it is not in `per_hour`, in `currency`.")


class Data(Section):
    """What the workload was trained on; synthetic data is known from the sweep."""

    dataset: Text = Field("unknown", description="Name of the dataset.")
    dataset_version: Text = Field("unknown", description="Version, split or hash.")
    tokenizer: Text = Field("unknown", description="Name and version.")
    augmentations: Text = Field("unknown", description="Exact list, with a hash where applied to latents beforehand.")
    noise_scheduler: Text = Field("unknown", description="Diffusion only: scheduler and its parameters.")
    target: Text = Field("unknown", description="Exact target, such as top-1 75.9 % on which split.")
    time_to_target_s: Number = Field("unknown", description="Time to that target, in s.")


class Declaration(Section):
    """One declaration file."""

    platform: Platform = Platform()
    conditions: Conditions = Conditions()
    power: WallPower = WallPower()
    price: Price = Price()
    data: Data = Data()
    notes: Text = Field("unknown", description="Anything else that a reader needs to repeat the numbers.")

    def at(self, path: str) -> Any:
        """Value at a dotted path, such as `platform.psu_w`.

        >>> Declaration().at("platform.psu_w")
        'unknown'
        """
        value: Any = self
        for name in path.split("."):
            value = getattr(value, name)
        return value


def declared_fields() -> dict[str, FieldInfo]:
    """Dotted path -> field of everything that can be declared."""
    found: dict[str, FieldInfo] = {}
    for name, info in Declaration.model_fields.items():
        section = _section(info)
        if section is None:
            found[name] = info
        else:
            found |= {f"{name}.{inner}": field for inner, field in section.model_fields.items()}
    return found


def mapped(declaration: Declaration, change: Callable[[str], str]) -> Declaration:
    """The declaration with `change` made to every text in it; what comes out is not validated again."""

    def changed(section: Section) -> dict[str, Any]:
        values = {name: getattr(section, name) for name in type(section).model_fields}
        parts = {
            name: value.model_copy(update=changed(value)) for name, value in values.items() if _holds_fields(value)
        }
        return parts | {name: change(value) for name, value in values.items() if isinstance(value, str)}

    return declaration.model_copy(update=changed(declaration))


def _holds_fields(value: Any) -> bool:
    return isinstance(value, Section)


def template() -> str:
    """A declaration that says nothing yet, with a comment on every field; it loads as it is."""
    return "\n".join(_template_lines()) + "\n"


def _template_lines() -> Iterator[str]:
    yield "# What rtxscale cannot see. Replace unknown by what you know, or by: not applicable."
    yield "# Use it with: rtxscale dossier RUN --declare declare.yaml"
    for name, info in Declaration.model_fields.items():
        section = _section(info)
        yield ""
        if section is None:
            yield from _commented(name, info, "")
            continue
        yield f"# {section.__doc__}"
        yield f"{name}:"
        for inner, field in section.model_fields.items():
            yield from _commented(inner, field, "  ")


def _commented(name: str, info: FieldInfo, indent: str) -> Iterator[str]:
    yield from textwrap.wrap(info.description or "", 110, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
    yield f"{indent}{name}: {info.default}"


def load_declaration(path: Path) -> Declaration:
    """Read and validate a declaration.

    Raises:
        SpecError: the file cannot be read or is wrong; holds every problem, in file order.
    """
    return parse_declaration(read_text(path, "a declaration"), str(path))


def parse_declaration(text: str, file: str) -> Declaration:
    """Validate the text of a declaration; `file` is its name in messages.

    Raises:
        SpecError: with every problem, in file order.
    """
    expected = f"a declaration: a mapping with any of {', '.join(Declaration.model_fields)}"
    document = parse_document(text, file, expected)
    if isinstance(document.data, dict):
        declaration = _validated(document)
        if declaration is not None and not document.problems:
            return declaration
    elif not document.problems:
        document.report((), found_value(document.data, document.marks.get(())), expected, line=1)
    raise SpecError(sorted(document.problems, key=lambda problem: problem.line or 0))


def _validated(document: Document) -> Declaration | None:
    try:
        return Declaration.model_validate(document.data)
    except ValidationError as error:
        for fault in error.errors(include_url=False, include_context=False, include_input=False):
            _report(document, fault["type"], fault["loc"])
    return None


def _report(document: Document, kind: str, location: tuple[int | str, ...]) -> None:
    """Translate one fault of pydantic: a field's type says what would be right."""
    path = tuple(step for end, step in enumerate(location) if _exists(document, location[: end + 1]))
    if kind == "extra_forbidden":
        name = str(path[-1])
        section = ".".join(map(str, path[:-1]))
        known = [field for field in declared_fields() if field.rpartition(".")[0] == section] if section else []
        known = known or list(Declaration.model_fields)
        choices = ", ".join(field.rpartition(".")[2] for field in known)
        close = nearest(name, list(declared_fields())) or f"one of {choices}"
        document.report(path, f"the key {name}", f"a known key: {close}", line=document.marks[path].key_line)
        return
    mark = document.marks.get(path)
    info = declared_fields().get(".".join(map(str, path))) or Declaration.model_fields.get(str(path[0]))
    expected = "a value" if info is None else expected_value(info.annotation, info)
    document.report(path, found_value(document.at(path), mark), expected + hint(document.at(path), mark, expected))


def _exists(document: Document, path: tuple[int | str, ...]) -> bool:
    return path in document.marks


def _section(info: FieldInfo) -> type[Section] | None:
    kind = info.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None
