"""Columns for what is found rather than made: texts of scripts, names on a disk, what an exception says.

Such a text may hold NUL, which PostgreSQL refuses, or half of a surrogate pair, which no page can be sent with. Kept is
what can be read; the raw bytes are evidence elsewhere (the log, the file itself).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.db import models

from engine.json_values import readable

if TYPE_CHECKING:
    _Text = models.TextField[str, str]
else:
    _Text = models.TextField


class FoundText(_Text):
    def get_prep_value(self, value: Any) -> Any:
        value = super().get_prep_value(value)
        return readable(value) if isinstance(value, str) else value


class _Encoder(json.JSONEncoder):
    def encode(self, o: Any) -> str:
        text = super().encode(o)
        suspicious = "\\u0000" in text or "\\ud" in text  # the second also begins every whole pair
        return super().encode(readable(o)) if suspicious else text


class FoundJson(models.JSONField):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{"encoder": _Encoder, **options})

    def deconstruct(self) -> Any:
        name, path, arguments, options = super().deconstruct()
        return name, path, arguments, {key: value for key, value in options.items() if key != "encoder"}
