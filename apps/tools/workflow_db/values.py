"""JSON values as SQL parameters and back. Bytes travel as {"$base64": "..."}."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Sequence
from typing import Any

from apps.tools import wire
from apps.tools.errors import Code, ToolFailure

BYTES_KEY = "$base64"
MOST = wire.MAX_FRAME - 64 * 1024
"""Characters of JSON that surely fit an answer with what stands around them."""


def parameters(given: Any) -> Any:
    """What sqlite3 binds, out of a JSON list or object; checked by the tool's schema before."""
    if isinstance(given, dict):
        return {name: _bound(value) for name, value in given.items()}
    return [_bound(value) for value in given or ()]


def row(columns: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    return {name: _shown(value) for name, value in zip(columns, values, strict=True)}


def size(values: Sequence[Any]) -> int:
    """About how many bytes a row takes as JSON."""
    return sum(16 + (len(value) * 4 // 3 if isinstance(value, (str, bytes)) else 8) for value in values)


def fits(taken: int) -> bool:
    """Whether rows of that `size` may fit one answer: False for those that cannot."""
    return taken * 3 // 4 <= wire.MAX_FRAME


def _bound(value: Any) -> Any:
    if isinstance(value, dict):
        encoded = value.get(BYTES_KEY)
        if set(value) == {BYTES_KEY} and isinstance(encoded, str):
            try:
                return base64.b64decode(encoded, validate=True)
            except (binascii.Error, ValueError):
                raise ToolFailure(
                    Code.ARGUMENTS_REJECTED, f"{BYTES_KEY} holds no valid base64. Nothing was done."
                ) from None
    return value


def _shown(value: Any) -> Any:
    if isinstance(value, bytes):
        return {BYTES_KEY: base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no number for it
    return value
