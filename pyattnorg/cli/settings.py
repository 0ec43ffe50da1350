"""Options of the questionnaire that have no flag of their own: ``--set NAME=VALUE``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

N_AXES = 3  # of a network: queries, keys, heads
ELSEWHERE = {"device": "--device", "verbose": "--quiet"}


def settings(given: Sequence[str] | None, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a questionnaire from flags (None: not given) and ``NAME=VALUE`` texts, all checked.

    A value is JSON, such as ``0.5`` or ``[0, 0, 1]`` (one an axis); what is no JSON is a word, such as ``gaussian``.
    """
    from pyattnorg.questionnaire import Questionnaire

    known = set(Questionnaire().get_params()) - set(ELSEWHERE)
    options = {name: value for name, value in flags.items() if value is not None}
    for text in given or ():
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise ValueError(f"--set: got {text!r}, expected NAME=VALUE, such as alpha=0.5")
        if name in ELSEWHERE:
            raise ValueError(f"--set: {name} is said by {ELSEWHERE[name]}")
        if name not in known:
            raise ValueError(
                f"--set: no option {name!r}, expected one of {', '.join(sorted(set(known) - set(ELSEWHERE)))}"
            )
        if name in options:
            raise ValueError(f"--set: {name} is given twice; give it once")
        options[name] = _value(value.strip())
    kinds = Questionnaire(**options).axis_options(N_AXES)
    if any(axis.tree == "given" for axis in kinds):
        raise ValueError("--set: tree='given' needs trees, which pyattnorg.organize(network, trees=…) takes, in Python")
    return options


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {"None": None, "True": True, "False": False}.get(text, text)


__all__ = ["settings"]
