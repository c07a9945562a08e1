"""What must not appear in a line that the platform writes about itself: tokens by their shape, secrets by their value.

It stops accidents, not malice. A process remembers the secret values that it has decrypted, and forgets the oldest.
"""

from __future__ import annotations

import base64
import json
import re
from collections import OrderedDict
from threading import Lock
from urllib.parse import quote

MASK = "***"
SHORTEST = 8
MOST_VALUES = 2000

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
        self._pattern: re.Pattern[str] | None = None
        self._lock = Lock()

    def remember(self, value: str) -> None:
        """From now on mask this value, each long line of it, and its usual spellings."""
        with self._lock:
            new = [form for form in spellings(value) if form not in self._values]
            if new:
                self._values.update(dict.fromkeys(new))
                while len(self._values) > MOST_VALUES:
                    self._values.popitem(last=False)
                longest_first = sorted(self._values, key=len, reverse=True)
                self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def redact(self, text: str) -> str:
        if self._pattern is not None:
            text = self._pattern.sub(MASK, text)
        return _SHAPES.sub(lambda match: (match["keep"] or "") + MASK, text)


def spellings(value: str) -> set[str]:
    """The value itself, its lines, and how JSON, addresses, `repr` and base64 write it; short ones left out."""
    lines = {value, value.strip(), *value.splitlines()}
    found = set(lines)
    for line in lines:
        data = line.encode(errors="surrogateescape")
        found |= {json.dumps(line)[1:-1], quote(line, safe=""), quote(line), repr(line)[1:-1], data.hex()}
        found |= {base64.b64encode(data).decode().rstrip("="), base64.urlsafe_b64encode(data).decode().rstrip("=")}
    return {form for form in found if len(form) >= SHORTEST}


redactor = Redactor()
"""The process's own: the vault tells it what it decrypts, the log's formatter asks it."""
