"""What is wrong with something a person or a network sent: where, which kind, and what to do about it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True)
class Problem:
    """One thing wrong. `path` is a JSONPath from the document's root, `code` a word scripts may rely on."""

    path: str
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class Refused(Exception):
    """It was refused as a whole; nothing of it was kept. `problems` lists everything that was found."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def json_path(location: Sequence[str | int], root: str = "$") -> str:
    """`$.plan.steps[2].title`; a key that is no plain word is quoted."""
    return root + "".join(_segment(part) for part in location)


def _segment(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    return f".{part}" if PLAIN_KEY.match(part) else f"[{json.dumps(part)}]"
