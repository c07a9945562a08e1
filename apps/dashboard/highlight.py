"""Python source as lines of coloured pieces, by the standard library's own tokenizer."""

from __future__ import annotations

import io
import keyword
import tokenize
from dataclasses import dataclass

_KINDS = {tokenize.STRING: "string", tokenize.COMMENT: "comment", tokenize.NUMBER: "number"}
_SOFT = frozenset({"match", "case", "type", "_"})


@dataclass(frozen=True)
class Piece:
    """A stretch of one line; `kind` is string, comment, number, keyword or empty."""

    text: str
    kind: str = ""


Line = tuple[Piece, ...]


def lines(text: str, *, python: bool) -> tuple[Line, ...]:
    """The lines of a file. What is no Python, or does not hold as such, comes without colours; no character is lost."""
    plain = text.splitlines()
    marks = _marks(text) if python else []
    spots: list[list[tuple[int, int, str]]] = [[] for _ in plain]
    for (first, start), (last, end), kind in marks:
        for number in range(first, min(last, len(plain)) + 1):
            left = start if number == first else 0
            right = end if number == last else len(plain[number - 1])
            spots[number - 1].append((left, right, kind))
    return tuple(_pieces(line, spot) for line, spot in zip(plain, spots, strict=True))


def _marks(text: str) -> list[tuple[tuple[int, int], tuple[int, int], str]]:
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return []
    return [(token.start, token.end, kind) for token in tokens if (kind := _kind(token))]


def _kind(token: tokenize.TokenInfo) -> str:
    if token.type == tokenize.NAME:
        return "keyword" if keyword.iskeyword(token.string) and token.string not in _SOFT else ""
    return _KINDS.get(token.type, "")


def _pieces(line: str, spots: list[tuple[int, int, str]]) -> Line:
    pieces, at = [], 0
    for start, end, kind in spots:
        pieces += [Piece(line[at:start]), Piece(line[start:end], kind)]
        at = end
    return tuple(piece for piece in [*pieces, Piece(line[at:])] if piece.text)
