"""Secrets are masked before anything is stored: as they are, and as they usually get written (SANDBOX B.12).

It prevents accidents. A script that wants to show a secret can always find a spelling that no list has.
"""

from __future__ import annotations

import base64
import json
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Any

MASK = b"***"
SHORTEST = 8
"""Shorter values are not masked: a one-letter secret would make every log unreadable."""
SHORTEST_LINE = 6
_HEAD = 4
_WRAPPED = 76  # columns of base64 as mail and most command-line tools write it


class Masker:
    """Knows every spelling of some secrets. One masker serves an attempt; each of its streams has its own `stream()`.

    `secrets` maps names to values. `too_short` lists the names whose values are not masked.
    """

    def __init__(self, secrets: Mapping[str, str] | None = None) -> None:
        given = {name: value for name, value in (secrets or {}).items() if value}
        self.too_short = tuple(sorted(name for name, value in given.items() if len(value.encode()) < SHORTEST))
        patterns: set[bytes] = set()
        for name, value in given.items():
            if name not in self.too_short:
                patterns |= spellings(value)
        self.patterns = tuple(sorted(patterns, key=lambda pattern: (-len(pattern), pattern)))
        self.longest = len(self.patterns[0]) if self.patterns else 0
        self.spans_lines = any(b"\n" in pattern for pattern in self.patterns)
        self._starts = frozenset(pattern[:size] for pattern in self.patterns for size in range(1, _HEAD))
        heads: dict[bytes, list[bytes]] = {}
        for pattern in self.patterns:
            heads.setdefault(pattern[:_HEAD], []).append(pattern)
        self._heads = tuple(heads.items())

    def stream(self) -> MaskedStream:
        return MaskedStream(self)

    def mask(self, data: bytes) -> bytes:
        """A whole text, masked."""
        return replace(data, self.runs(data))

    def text(self, text: str) -> str:
        """As `mask`, for text of the platform's own: messages, claims, names."""
        if not self.patterns:
            return text
        return self.mask(text.encode("utf-8", "surrogatepass")).decode("utf-8", "replace")

    def value(self, value: Any) -> Any:
        """As `text`, for every text inside a JSON value, keys too. What has no secret in it comes back as it is."""
        # All texts at once: looking through each for every spelling takes ten times as long.
        if not self.finds("\n".join(_texts(value)).encode("utf-8", "surrogatepass")):
            return value
        return self._masked(value)

    def _masked(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self._masked(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self._masked(inner) for inner in value]
        return value

    def finds(self, data: bytes) -> bool:
        """Whether a secret is in there."""
        return any(pattern in data for pattern in self.patterns)

    def runs(self, data: bytes) -> list[tuple[int, int]]:
        """From where to where secrets reach, overlapping ones as one run, in order."""
        found: list[tuple[int, int]] = []
        for pattern in self.patterns:
            at = data.find(pattern)
            while at >= 0:
                found.append((at, at + len(pattern)))
                at = data.find(pattern, at + 1)
        return _merged(found) if found else found

    def open_end(self, data: bytes) -> int:
        """How many bytes at the end are a proper beginning of a pattern, so that what follows may complete it."""
        if not self.patterns or not data or (data.endswith(b"\n") and not self.spans_lines):
            return 0
        window = data[-(self.longest - 1) :]
        sizes = range(min(_HEAD - 1, len(window)), 0, -1)
        longest = next((size for size in sizes if window[-size:] in self._starts), 0)
        for head, patterns in self._heads:
            at = window.find(head)
            while 0 <= at < len(window) - longest:
                rest = window[at:]
                if any(len(pattern) > len(rest) and pattern.startswith(rest) for pattern in patterns):
                    longest = len(rest)
                    break
                at = window.find(head, at + 1)
        return longest


class MaskedStream:
    """Masks a stream piece by piece; what comes out in all does not depend on where the pieces were cut.

    Held back is only the longest end that may still become a secret, so a whole line is never late.
    """

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        if not self._masker.patterns:
            return data
        data = self._held + data if self._held else data
        runs = self._masker.runs(data)
        ready = len(data) - self._masker.open_end(data)
        while runs and runs[-1][1] > ready:  # a secret that may run into another one is held back with it
            ready = min(ready, runs.pop()[0])
        self._held = data[ready:]
        return replace(data[:ready], runs)

    def close(self) -> bytes:
        """What was held back, at the end of the stream."""
        rest, self._held = self._held, b""
        return self._masker.mask(rest)


def _texts(value: Any) -> list[str]:
    """Every text inside a JSON value, keys too."""
    found: list[str] = []
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            found.append(one)
        elif isinstance(one, list | tuple):
            waiting += one
        elif isinstance(one, Mapping):
            found += map(str, one)
            waiting += one.values()
    return found


def spellings(value: str) -> set[bytes]:
    """Every spelling of a secret that is looked for."""
    raw = value.encode("utf-8", "surrogatepass")
    found = {raw, *_escaped(value), *_encoded(raw), raw.hex().encode(), raw.hex().upper().encode()}
    found |= {line for line in raw.splitlines() if len(line) >= SHORTEST_LINE}
    found |= {line.strip() for line in raw.splitlines() if len(line.strip()) >= SHORTEST_LINE}
    return {spelling for spelling in found if len(spelling) >= SHORTEST_LINE}


def replace(data: bytes, runs: Iterable[tuple[int, int]]) -> bytes:
    """`data` with each run masked. Newlines inside one stay, so that lines are counted as they were printed."""
    pieces: list[bytes] = []
    done = 0
    for start, end in runs:
        pieces.append(data[done:start])
        lines = data[start:end].split(b"\n")
        pieces.append(b"\n".join(MASK if line else b"" for line in lines))
        done = end
    pieces.append(data[done:])
    return b"".join(pieces)


def _merged(found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found.sort()
    runs = [found[0]]
    for start, end in found[1:]:
        if start < runs[-1][1]:
            runs[-1] = (runs[-1][0], max(runs[-1][1], end))
        else:
            runs.append((start, end))
    return runs


def _escaped(value: str) -> set[bytes]:
    texts = {
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        json.dumps(value)[1:-1].replace("/", "\\/"),
        json.dumps(json.dumps(value, ensure_ascii=False), ensure_ascii=False)[3:-3],
        json.dumps(json.dumps(value))[3:-3],  # JSON that was put into JSON, as a message in a log line of JSON is
        repr(value)[1:-1],
        ascii(value)[1:-1],
        urllib.parse.quote(value, safe="", errors="surrogatepass"),
        urllib.parse.quote(value, errors="surrogatepass"),
        urllib.parse.quote_plus(value, errors="surrogatepass"),
    }
    return {text.encode("utf-8", "surrogatepass") for text in texts}


def _encoded(raw: bytes) -> set[bytes]:
    """base64 and base64url at the three alignments, without the edge characters that its neighbours decide.

    Of base32 only the whole value by itself: its five alignments are more to look for than they are ever met.
    """
    found = {base64.b32encode(raw).rstrip(b"=")}
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + raw).rstrip(b"=")
        first = -(-before * 8 // 6)  # the last of these holds bits of what stands before
        last = len(encoded) - (1 if (before + len(raw)) % 3 else 0)
        core = encoded[first:last]
        found |= {core, core.translate(bytes.maketrans(b"+/", b"-_"))}
    whole = base64.b64encode(raw).rstrip(b"=")
    found |= {whole[at : at + _WRAPPED] for at in range(0, len(whole), _WRAPPED)} if len(whole) > _WRAPPED else set()
    return found
