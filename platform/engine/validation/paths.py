"""JSONPath (RFC 9535, strictly): compiled once, and what it finds."""

from __future__ import annotations

from functools import lru_cache
from typing import cast

from jsonpath import JSONPath, JSONPathEnvironment
from jsonpath.exceptions import JSONPathError
from pydantic import JsonValue

STRICT = JSONPathEnvironment(strict=True)


class BadPath(ValueError):
    """It is no JSONPath."""


@lru_cache(maxsize=1024)
def compiled(path: str) -> JSONPath:
    """Raises `BadPath` with the reason."""
    try:
        found = STRICT.compile(path)
    except JSONPathError as error:
        raise BadPath(str(error.args[0]) if error.args else "it cannot be read") from None
    except RecursionError:
        raise BadPath("it is nested too deep") from None
    if not isinstance(found, JSONPath):
        raise BadPath("it joins several paths")
    return found


def names_one_place(path: str) -> bool:
    """Whether the path can find one value at most, in any document. Raises `BadPath`."""
    return compiled(path).singular_query()


def find(path: str, document: JsonValue) -> list[JsonValue]:
    """Every value at the path, in the document's order. Raises `BadPath`, also for one too deep to follow."""
    if isinstance(document, str):  # the library would take it for JSON to be read
        return [] if compiled(path).segments else [document]
    try:
        return [cast(JsonValue, match.obj) for match in compiled(path).finditer(document)]
    except (JSONPathError, RecursionError):
        raise BadPath("it cannot be followed in a document as deep as this") from None
