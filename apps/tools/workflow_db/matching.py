"""LIKE and GLOB, asking the clock while they look: SQLite's own may take minutes for one row."""

from __future__ import annotations

import string
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

LONGEST_PATTERN = 1000
CLOCK_EVERY = 256
Test = Callable[[str], bool]
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_TOO_LONG = "LIKE or GLOB pattern too complex"


def folded(text: str) -> str:
    """LIKE knows no difference between a and A, and knows it for no other letters."""
    return text.lower() if text.isascii() else text.translate(_LOWER)


@dataclass(frozen=True)
class Piece:
    """What stands between two places where anything may be: so many characters, some of them given."""

    length: int
    runs: tuple[tuple[int, str], ...]
    tests: tuple[tuple[int, Test], ...]

    def is_at(self, text: str, place: int) -> bool:
        if place < 0 or place + self.length > len(text):
            return False
        return all(text.startswith(run, place + at) for at, run in self.runs) and all(
            test(text[place + at]) for at, test in self.tests
        )

    def find(self, text: str, start: int, deadline: float) -> int:
        """The first place from `start` on, or -1. Raises TimeoutError."""
        tried = 0
        while start + self.length <= len(text):
            if self.runs:
                at, run = self.runs[0]
                found = text.find(run, start + at)
                if found < 0:
                    return -1
                start = found - at
            if self.is_at(text, start):
                return start
            start += 1
            tried += 1
            if tried % CLOCK_EVERY == 0 and time.monotonic() > deadline:
                raise TimeoutError
        return -1


@dataclass(frozen=True)
class Pattern:
    """Pieces with anything between them. None: it fits nothing."""

    pieces: tuple[Piece, ...] | None
    within: str | None = None
    """The commonest kind, a text with anything before and after it."""

    def fits(self, text: str, deadline: float) -> bool:
        """Raises TimeoutError at the deadline (a `time.monotonic`)."""
        if self.within is not None:
            return self.within in text
        if self.pieces is None:
            return False
        first, *middle = self.pieces
        if not middle:
            return len(text) == first.length and first.is_at(text, 0)
        if not first.is_at(text, 0):
            return False
        here = first.length
        last = middle.pop()
        for piece in middle:
            found = piece.find(text, here, deadline)
            if found < 0:
                return False
            here = found + piece.length
        end = len(text) - last.length
        return end >= here and last.is_at(text, end)


class _Building:
    def __init__(self) -> None:
        self._pieces: list[Piece] = []
        self._start()

    def _start(self) -> None:
        self._length = 0
        self._runs: list[tuple[int, str]] = []
        self._tests: list[tuple[int, Test]] = []

    def given(self, character: str) -> None:
        if self._runs and self._runs[-1][0] + len(self._runs[-1][1]) == self._length:
            at, run = self._runs.pop()
            self._runs.append((at, run + character))
        else:
            self._runs.append((self._length, character))
        self._length += 1

    def one(self, test: Test | None = None) -> None:
        if test is not None:
            self._tests.append((self._length, test))
        self._length += 1

    def anything(self) -> None:
        self._pieces.append(Piece(self._length, tuple(self._runs), tuple(self._tests)))
        self._start()

    def done(self) -> Pattern:
        self.anything()
        return Pattern(tuple(self._pieces), _within(self._pieces))


def _within(pieces: list[Piece]) -> str | None:
    if len(pieces) != 3 or pieces[0].length or pieces[2].length:
        return None
    run = "".join(run for _, run in pieces[1].runs)
    return run if len(run) == pieces[1].length else None


@lru_cache(maxsize=256)
def like(pattern: str, escape: str) -> Pattern:
    """For a folded text. Raises ValueError."""
    if len(pattern) > LONGEST_PATTERN:
        raise ValueError(_TOO_LONG)
    if len(escape) > 1:
        raise ValueError("ESCAPE expression must be a single character")
    building = _Building()
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, None)
            if following is None:
                return Pattern(None)
            building.given(folded(following))
        elif character == "%":
            building.anything()
        elif character == "_":
            building.one()
        else:
            building.given(folded(character))
    return building.done()


@lru_cache(maxsize=256)
def glob(pattern: str) -> Pattern:
    """Raises ValueError."""
    if len(pattern) > LONGEST_PATTERN:
        raise ValueError(_TOO_LONG)
    building = _Building()
    place = 0
    while place < len(pattern):
        character = pattern[place]
        place += 1
        if character == "*":
            building.anything()
        elif character == "?":
            building.one()
        elif character == "[":
            test, place = _set(pattern, place)
            if test is None:
                return Pattern(None)
            building.one(test)
        else:
            building.given(character)
    return building.done()


def _set(pattern: str, place: int) -> tuple[Test | None, int]:
    """The set that begins after its bracket, and where it ends; None when it never ends."""
    negated = pattern.startswith("^", place)
    place += negated
    end = pattern.find("]", place + 1 if pattern.startswith("]", place) else place)
    if end < 0:
        return None, place
    ranges = []
    while place < end:
        if place + 2 < end and pattern[place + 1] == "-":
            ranges.append((pattern[place], pattern[place + 2]))
            place += 3
        else:
            ranges.append((pattern[place], pattern[place]))
            place += 1
    return (lambda character: any(low <= character <= high for low, high in ranges) is not negated), end + 1
