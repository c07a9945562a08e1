"""`{{NAME}}` in what people read, filled in with a run's resolved values (BEHAVIOUR 2)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from engine import environment

MARK = "{{"
_PLACE = re.compile(r"\{\{\s*([A-Z][A-Z0-9_]{0,63})\s*\}\}")


def fill(text: str, values: Mapping[str, Any]) -> str:
    """The text with each `{{NAME}}` that `values` has. A value stands as its variable holds it; it is not filled again.

    Unknown names, and values that no variable can hold, leave their place as it was written, for all to see.
    """
    return _PLACE.sub(lambda place: _value(place[0], place[1], values), text) if MARK in text else text


def _value(written: str, name: str, values: Mapping[str, Any]) -> str:
    if name not in values:
        return written
    try:
        return environment.text(name, values[name])
    except environment.ValueRefused:
        return written
