"""What a projection was built by: a hash over the SQL of its tables, the code that fills them, and the words it reads.

A pure function of the installed package. Another fingerprint means "rebuild", never "migrate": a projection is disposable.
Queries and audits are not in it, for they fill nothing.
"""

from __future__ import annotations

import functools
import hashlib
from importlib.resources import files

_CODE = (
    "allocations.py", "budgets.py", "capacity.py", "clock.py", "cycles.py", "drains.py", "folding.py", "heartbeats.py",
    "journal.py", "ledger.py", "moment.py", "plans.py", "runner.py", "services.py", "sheet.py", "workloads.py",
)  # fmt: skip
_WORDS = ("decision.py", "decisions.py", "envelope.py", "fields.py", "plans.py", "units.py")


@functools.cache
def schema_files() -> tuple[str, ...]:
    """Return the SQL that creates a projection, in order."""
    folder = files("apportion.projections") / "schema"
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return tuple((folder / name).read_text(encoding="utf-8") for name in names)


@functools.cache
def fingerprint() -> str:
    """Return the hash in hex."""
    hasher = hashlib.sha256()
    code, words = files("apportion.projections"), files("apportion.core")
    texts = [*schema_files()]
    texts += [(code / name).read_text(encoding="utf-8") for name in _CODE]
    texts += [(words / name).read_text(encoding="utf-8") for name in _WORDS]
    events = (entry for entry in (words / "events").iterdir() if entry.name.endswith(".py"))
    texts += [entry.read_text(encoding="utf-8") for entry in sorted(events, key=lambda entry: entry.name)]
    for text in texts:
        hasher.update(b"%d\n" % len(text))
        hasher.update(text.encode())
    return hasher.hexdigest()
