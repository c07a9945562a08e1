"""What must not appear in a line that the platform writes about itself: tokens by their shape, secrets by their value.

It stops accidents, not malice. A process remembers the secret values that it has decrypted, and forgets the oldest.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from threading import Lock

from engine.logs.masking import Masker

MASK = "***"
MOST_VALUES = 500

_SHAPES = re.compile(
    r"(?P<keep>\b(?:Bearer|Basic|token|password|secret|signature|api[_-]?key|authorization|cookie)\b[\"']?\s*[:=]?\s*[\"']?)"
    r"(?P<value>[A-Za-z0-9+/_.~=-]{8,})"
    r"|\b(?:pat|pst|pwh|whsec)_[A-Za-z0-9_-]{8,}"
    r"|(?<=/hooks/)[A-Za-z0-9_-]{8,}"
    r"|\bsha(?:1|256)=[0-9A-Fa-f]{20,}"
    r"|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)",
    re.IGNORECASE,
)


class Redactor:
    """Safe to use from several threads."""

    def __init__(self) -> None:
        self._values: OrderedDict[str, None] = OrderedDict()
        self._masker: Masker | None = Masker()
        self._lock = Lock()

    def remember(self, value: str) -> None:
        """From now on mask this value and each line of it, in every spelling that is masked in the logs of steps."""
        with self._lock:
            if value not in self._values:
                self._values[value] = None
                self._masker = None  # made anew when it is next asked
                while len(self._values) > MOST_VALUES:
                    self._values.popitem(last=False)

    def redact(self, text: str) -> str:
        masked = (self._masker or self._made()).text(text)
        return _SHAPES.sub(lambda match: (match["keep"] or "") + MASK, masked)

    def _made(self) -> Masker:
        with self._lock:
            lines = {line for value in self._values for line in (value, value.strip(), *value.splitlines())}
            self._masker = masker = Masker({line: line for line in lines})
            return masker


redactor = Redactor()
"""The process's own: the vault tells it what it decrypts, the log's formatter asks it."""
