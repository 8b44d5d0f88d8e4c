"""Words that no name is looked for in: those of a sweep file, of the tables, and of everyday talk about this field.

A machine that is called `ring` cannot be told from the algorithm; replaced, tables and sweep would lose their meaning.
Called by `redaction.private_names`.
"""

from __future__ import annotations

import re
from functools import cache

from rtxscale.results.outcomes import Outcome
from rtxscale.results.schema import TABLES
from rtxscale.spec.fields import KINDS, sweep_fields

_EVERYDAY = """
actions address admin administrator agent ai apps auto bench bot build builder ci cluster code compute container cpu
cuda data datasets debian default dev docker email files github gitlab gpu gpus group guest head home host ip job jobs
jupyter kernel lab linux local localhost login maintainer maintainers master ml model models name nccl node nodes none
noreply null nvidia off on path process projects public python ray redacted repo repos research ring root run runner
science scratch secret seed serial server service session shared sim simple smi software speed step steps strong sweep
system team temp test tester torch torchrun train training tree trial trials ubuntu unknown url user users vision warm
weak work worker workers workspace
"""
EVERYDAY = frozenset(_EVERYDAY.split())
"""Words that are no one's name alone: as a name they are left where they stand."""


@cache
def field_words() -> frozenset[str]:
    """Keys and fixed values of sweep files, columns and outcomes, in small letters, and their parts between dots.

    >>> {"max-autotune", "warmup_max_s", "lora", "throughput_per_s", "crashed"} <= field_words()
    True
    """
    fields = sweep_fields(None)
    columns = (column.name for table in TABLES.values() for column in table)
    chosen = (word for field in fields.values() for word in field.words)
    words = (*fields, *KINDS, *chosen, *columns, *TABLES, *Outcome)
    return frozenset(part.lower() for word in words for part in re.split(r"[.\s]+", word) if part)
