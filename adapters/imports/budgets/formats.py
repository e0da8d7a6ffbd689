"""Which format a file is, and its tree; or a plain statement of what it is instead.

Decides by what the text holds, never by its name. A pure function of the text and of what the user says it is.
"""

from __future__ import annotations

import re

from apportion.adapters.imports.budgets import fair_scheduler, kai, kueue, sacctmgr
from apportion.adapters.imports.budgets.documents import documents, objects, refuse_template
from apportion.adapters.imports.budgets.tree import BadTree, Tree

FORMATS = ("slurm", "yarn", "kueue", "kai")
BY = ("auto", "weight", "quota")
MAX_BYTES = 16 << 20
_SLURM_CONF = re.compile(
    r"(?mi)^\s*(ClusterName|SlurmctldHost|ControlMachine|PartitionName|NodeName|SchedulerType|Name=gpu)\b\s*=?"
)
_USER_SETTINGS = re.compile(r"(?m)^[\w-]+:(fairshare|GrpTRES|QOS|MaxJobs)\w*:")


def parse(text: str, form: str = "", by: str = "auto") -> Tree:
    """Return the tree of a file of any known format; ``form`` says which one it must be. Raises ``BadTree``."""
    if not form:
        form = recognised(text)
    if form == "slurm":
        refuse_template(text)
        if not sacctmgr.is_dump(text):
            raise _not_known(text)
        return sacctmgr.parse(text)
    if form == "yarn":
        refuse_template(text)
        return fair_scheduler.parse(text)
    found = documents(text)
    return kueue.parse(found, by) if form == "kueue" else kai.parse(found, by)


def recognised(text: str) -> str:
    """Return the format of a text. Raises ``BadTree`` saying what it looks like."""
    if text.lstrip("\ufeff \t\r\n").startswith("<"):
        return "yarn"
    refuse_template(text)
    if sacctmgr.is_dump(text):
        return "slurm"
    if _SLURM_CONF.search(text) or _USER_SETTINGS.search(text):
        raise _not_known(text)
    found = documents(text)
    if kueue.is_kueue(found):
        return "kueue"
    if kai.is_kai(found):
        return "kai"
    kinds = sorted({kind for _, kind, _ in objects(found) if kind})
    if kinds:
        raise BadTree(
            0,
            f"it holds {', '.join(kinds)[:200]} and no queue",
            "a tree is in ClusterQueue and Cohort (Kueue) or Queue (KAI) objects",
        )
    raise _not_known(text)


def _not_known(text: str) -> BadTree:
    if _SLURM_CONF.search(text):
        what = "this configures Slurm's nodes, partitions or devices; it holds no share of anybody"
    elif _USER_SETTINGS.search(text):
        what = "these are settings for a script that fills Slurm's database; the tree is in the database"
    else:
        return BadTree(
            0,
            "there is no share tree in this file that is known here",
            "known are sacctmgr dump, fair-scheduler.xml, Kueue ClusterQueue, KAI Queue; --from FORMAT tells what is wrong",
        )
    return BadTree(0, what, "import the output of `sacctmgr dump CLUSTER`")
