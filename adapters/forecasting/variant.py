"""Which way of training a workload is: LoRA against full fine-tuning changes how long it runs by orders of magnitude.

Decides by convention, first answer first: ``APPORTION_VARIANT`` in the workload's environment, a word of its name, a word of its
command. Words are parts between characters that are neither letters nor digits, in any case. What says nothing is ``other``.
A pure function of the submission. It must never guess from how long something ran.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

WORDS = {
    "pretrain": ("pretrain", "pretraining", "pre-train", "pre-training"),
    "continued": ("midtrain", "midtraining", "continued", "cpt"),
    "full": ("full", "fft", "finetune", "finetuning", "fine-tune", "fine-tuning"),
    "sft": ("sft", "instruct", "instruction"),
    "lora": ("lora", "dora"),
    "qlora": ("qlora",),
    "dpo": ("dpo", "ipo", "kto", "orpo"),
    "rl": ("rl", "rlhf", "ppo", "grpo", "rlvr"),
    "reward": ("reward", "rm"),
    "distill": ("distill", "distillation", "kd"),
}
OTHER = "other"
VARIANTS = (OTHER, *WORDS)
_VARIANT = {word: variant for variant, words in WORDS.items() for word in words}
# the special ones first: a QLoRA job is often called a fine-tune too
_ORDER = ("qlora", "lora", "dpo", "rl", "reward", "distill", "sft", "continued", "pretrain", "full")


def variant_of(stated: str, name: str, command: Iterable[str] = ()) -> str:
    """Return the variant of a workload."""
    for text in (stated, name, " ".join(command)):
        found = {_VARIANT[word] for word in _words(text) if word in _VARIANT}
        if found:
            return next(variant for variant in _ORDER if variant in found)
    return OTHER


def _words(text: str) -> list[str]:
    plain = re.split(r"[^a-z0-9]+", text.lower())
    return plain + [f"{first}-{second}" for first, second in pairwise(plain)]
