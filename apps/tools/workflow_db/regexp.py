"""SQL's REGEXP in time proportional to the text: no pattern makes it hang, as Python's own engine can be made to.

Python's parser reads the pattern; what it gives is run as an automaton whose steps are remembered. Back references and
look-around have no such automaton, and are refused.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from re import _constants as ops  # type: ignore[attr-defined]  # Python's own parser; it has no public name
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

LARGEST_PATTERN = 1000
LARGEST_AUTOMATON = 2000
REMEMBERED = 4000
CLOCK_EVERY = 64
Predicate = Callable[[str], bool]
Context = tuple[str, str | None, bool]
"""What lies around a place: the character before ("" at the start), the one after (None at the end), and whether that
one is the last."""


class Unsupported(Exception):
    """The pattern is not valid, or needs what REGEXP does not offer."""


class Regexp:
    """`regexp(pattern, text)`: 1 when the pattern is found anywhere in the text, null when either is null.

    SQLite swallows what a function raises: the reason stays in `problem`.
    """

    def __init__(self, deadline: Callable[[], float]) -> None:
        self._deadline = deadline
        self.problem = ""

    def __call__(self, pattern: Any, text: Any) -> bool | None:
        if pattern is None or text is None:
            return None
        try:
            return automaton(str(pattern)).search(str(text), self._deadline())
        except Unsupported as error:
            self.problem = f"REGEXP: {error}"
            raise


@dataclass(slots=True)
class Node:
    """A state: eats one character, or passes where `passes` allows; neither is a fork; no way on is the match."""

    eats: Predicate | None = None
    passes: Callable[[Context], bool] | None = None
    ways: tuple[int, ...] = ()


class Automaton:
    """The states of one pattern. Searches remember each step they have worked out."""

    def __init__(self, nodes: list[Node], start: int) -> None:
        self._nodes = nodes
        self._start = frozenset({start})
        self._steps: dict[tuple[frozenset[int], str, str | None, bool], tuple[bool, frozenset[int]]] = {}

    def search(self, text: str, deadline: float) -> bool:
        """True when the pattern is found. Raises TimeoutError at the deadline (a `time.monotonic`)."""
        here, before, last = self._start, "", len(text) - 1
        for index, character in enumerate(text):
            if index % CLOCK_EVERY == 0 and time.monotonic() > deadline:
                raise TimeoutError
            found, here = self._step(here, _class(before), character, index == last and character == "\n")
            if found:
                return True
            before = character
        return self._step(here, _class(before), None, False)[0]

    def _step(self, here: frozenset[int], before: str, after: str | None, last: bool) -> tuple[bool, frozenset[int]]:
        key = (here, before, after, last)
        known = self._steps.get(key)
        if known is None:
            if len(self._steps) >= REMEMBERED:
                self._steps.clear()
            known = self._steps[key] = self._work_out(here, (before, after, last))
        return known

    def _work_out(self, here: frozenset[int], context: Context) -> tuple[bool, frozenset[int]]:
        reached: set[int] = set()
        following = set(self._start)
        open_states = list(here)
        while open_states:
            state = open_states.pop()
            if state in reached:
                continue
            reached.add(state)
            node = self._nodes[state]
            if node.eats is not None:
                if context[1] is not None and node.eats(context[1]):
                    following.update(node.ways)
            elif not node.ways:
                return True, self._start
            elif node.passes is None or node.passes(context):
                open_states.extend(node.ways)
        return False, frozenset(following)


@lru_cache(maxsize=64)
def automaton(pattern: str) -> Automaton:
    """Raises Unsupported."""
    if len(pattern) > LARGEST_PATTERN:
        raise Unsupported(f"the pattern has more than {LARGEST_PATTERN} characters.")
    try:
        tree = parser.parse(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise Unsupported(f"the pattern is not valid: {error}.") from None
    building = _Building()
    end = building.add(Node())
    start = building.sequence(tree, tree.state.flags, end)
    return Automaton(building.nodes, start)


class _Building:
    """Builds from the end: each part is given the state that follows it."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def add(self, node: Node) -> int:
        if len(self.nodes) >= LARGEST_AUTOMATON:
            raise Unsupported("the pattern is too large once its repeats are written out.")
        self.nodes.append(node)
        return len(self.nodes) - 1

    def sequence(self, tree: Any, flags: int, following: int) -> int:
        for op, argument in reversed(list(tree)):
            following = self._part(op, argument, flags, following)
        return following

    def _part(self, op: Any, argument: Any, flags: int, following: int) -> int:
        if op in (ops.MAX_REPEAT, ops.MIN_REPEAT):
            return self._repeat(argument, flags, following)
        if op is ops.BRANCH:
            return self.add(Node(ways=tuple(self.sequence(each, flags, following) for each in argument[1])))
        if op is ops.SUBPATTERN:
            _, added, removed, inner = argument
            return self.sequence(inner, (flags | added) & ~removed, following)
        if op is ops.AT:
            return self.add(Node(passes=_place(argument, flags), ways=(following,)))
        return self.add(Node(eats=_eater(op, argument, flags), ways=(following,)))

    def _repeat(self, argument: Any, flags: int, following: int) -> int:
        least, most, inner = argument
        if most is ops.MAXREPEAT:
            loop = self.add(Node())
            self.nodes[loop].ways = (self.sequence(inner, flags, loop), following)
            following = loop
        else:
            beyond = following
            for _ in range(most - least):
                following = self.add(Node(ways=(self.sequence(inner, flags, following), beyond)))
        for _ in range(least):
            following = self.sequence(inner, flags, following)
        return following


def _eater(op: Any, argument: Any, flags: int) -> Predicate:
    if op is ops.ANY:
        return (lambda _: True) if flags & re.DOTALL else (lambda character: character != "\n")
    if op is ops.LITERAL:
        return _one_of([(op, argument)], flags)
    if op is ops.NOT_LITERAL:
        return _one_of([(ops.NEGATE, None), (ops.LITERAL, argument)], flags)
    if op is ops.IN:
        return _one_of(argument, flags)
    raise Unsupported(f"{str(op).lower().replace('_', ' ')} is not offered: no back references, no look-around.")


def _one_of(items: list[tuple[Any, Any]], flags: int) -> Predicate:
    negated = items[0][0] is ops.NEGATE
    tests = [_item(op, argument, flags) for op, argument in items[negated:]]

    def test(character: str) -> bool:
        spellings = {character, character.lower(), character.upper()} if flags & re.IGNORECASE else (character,)
        return any(each(spelling) for each in tests for spelling in spellings if len(spelling) == 1) is not negated

    return test


def _item(op: Any, argument: Any, flags: int) -> Predicate:
    if op is ops.LITERAL:
        return lambda character: ord(character) == argument
    if op is ops.RANGE:
        return lambda character: argument[0] <= ord(character) <= argument[1]
    if op is ops.CATEGORY:
        name = str(argument)
        kind = next(test for word, test in _CATEGORIES if word in name)
        negated = "NOT" in name
        ascii_only = bool(flags & re.ASCII)
        return lambda character: (kind(character) and (not ascii_only or character.isascii())) is not negated
    raise Unsupported("a set of characters holds what is not offered.")


def _place(argument: Any, flags: int) -> Callable[[Context], bool]:
    name = str(argument)
    if flags & re.MULTILINE and name in ("AT_BEGINNING", "AT_END"):
        name += "_LINE"
    try:
        return _PLACES[name]
    except KeyError:
        raise Unsupported(f"{name.lower()} is not offered.") from None


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _class(before: str) -> str:
    """All that a place asks of the character before it: none, a new line, a word's, another."""
    if not before or before == "\n":
        return before
    return "a" if _is_word(before) else "."


def _at_boundary(context: Context) -> bool:
    before, after, _ = context
    return (bool(before) and _is_word(before)) is not (after is not None and _is_word(after))


_CATEGORIES: tuple[tuple[str, Predicate], ...] = (
    ("DIGIT", str.isdecimal),
    ("SPACE", str.isspace),
    ("WORD", _is_word),
)
_PLACES: dict[str, Callable[[Context], bool]] = {
    "AT_BEGINNING": lambda context: context[0] == "",
    "AT_BEGINNING_STRING": lambda context: context[0] == "",
    "AT_BEGINNING_LINE": lambda context: context[0] in ("", "\n"),
    "AT_END": lambda context: context[1] is None or context[2],
    "AT_END_STRING": lambda context: context[1] is None,
    "AT_END_LINE": lambda context: context[1] is None or context[1] == "\n",
    "AT_BOUNDARY": _at_boundary,
    "AT_NON_BOUNDARY": lambda context: not _at_boundary(context),
}
