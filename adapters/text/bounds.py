"""Why a value is not accepted, in the words and units that people type.

A pure function of what the decoder says: which field it is about, however deep, and the bound that the value breaks. It decides
nothing: the bounds stand beside the fields of events.
"""

from __future__ import annotations

import re

from apportion.adapters.text.template import number_words

_KINDS = {"int": "a whole number", "str": "text", "bool": "yes or no", "array": "a list", "object": "a table"}


def place_of(error: Exception) -> tuple[str, list[str]]:
    """Return what is wrong, and the names that lead to the field."""
    text, _, path = str(error).partition(" - at `$.")
    return text, [step for part in path.rstrip("`").split(".") if (step := part.partition("[")[0])]


def rule_words(name: str, text: str) -> str:
    """Return what a field must be."""
    if "matching regex" in text:
        if "budget" in name:
            return "use a path of names joined by /, each of letters, digits and _ - . such as lab/llm/olmo"
        return "use letters, digits and _ - . : starting with a letter or digit"
    if text.startswith("Invalid enum value"):
        return "not one of the values known"
    bound = re.match(r"Expected `int` (>=|<=|<|>) (-?\d+)$", text)
    if bound:
        words = {">=": "at least", "<=": "at most", "<": "less than", ">": "more than"}[bound[1]]
        return f"it must be {words} {number_words(name, int(bound[2]))}"
    length = re.match(r"Expected `(str|array)` of length (>=|<=) (\d+)$", text)
    if length:
        what = "characters" if length[1] == "str" else "entries"
        return f"it must have {'at least' if length[2] == '>=' else 'at most'} {length[3]} {what}"
    kind = re.match(r"Expected `(int|str|bool|array|object)(?: \| null)?`, got `\w+`$", text)
    if kind:
        return f"it must be {_KINDS[kind[1]]}"
    return text[:1].lower() + text[1:]
