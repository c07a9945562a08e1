"""Which route a branch takes: the words of a caller or of a `route_selection.json`, read strictly (BEHAVIOUR 3)."""

from __future__ import annotations

from engine import json_values
from engine.document import BranchStep, Route

NAMES = ("select_route", "route_id", "selected_route_id")


class SelectionInvalid(ValueError):
    """The selection is there but says no route. The message says why."""


def choose(branch: BranchStep, word: str) -> Route | None:
    """The route that `word` names: its id, else a `next_step_id` that only one route has. None when it names none."""
    by_id = [route for route in branch.routes if route.route_id == word]
    if by_id:
        return by_id[0]
    by_target = [route for route in branch.routes if route.next_step_id == word]
    return by_target[0] if len(by_target) == 1 else None


def read(branch: BranchStep, text: str) -> Route:
    """The route that the file's text selects. Raises `SelectionInvalid`; the first route is never taken silently."""
    try:
        value = json_values.load(text)
    except json_values.NotJson as error:
        raise SelectionInvalid(f"it is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise SelectionInvalid("it is not an object")
    given = {name: value[name] for name in NAMES if name in value}
    words = list(dict.fromkeys(word if isinstance(word, str) else None for word in given.values()))
    if not given:
        raise SelectionInvalid('it has no "select_route"')
    if len(words) > 1:
        raise SelectionInvalid(f"{' and '.join(given)} differ")
    if words[0] is None:
        raise SelectionInvalid(f"{next(iter(given))} is not text")
    route = choose(branch, words[0])
    if route is None:
        raise SelectionInvalid(f"it selects {words[0][:80]!r}")
    return route


def options(branch: BranchStep) -> str:
    """For people: what may be selected."""
    return "Options: " + ", ".join(f"{route.route_id} (to {route.next_step_id})" for route in branch.routes) + "."
