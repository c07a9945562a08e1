"""What may be a secret (SANDBOX B.12)."""

from __future__ import annotations

import re

from apps.workflows.errors import SecretRefused
from engine.logs import masking
from engine.words import ENVIRONMENT_NAME

MIN_LENGTH = masking.SHORTEST
MAX_BYTES = 32 * 1024


def check_name(name: str) -> None:
    if not re.fullmatch(ENVIRONMENT_NAME.strip("^$"), name):
        raise SecretRefused(
            f"{name!r} is no name for a secret: capital letters, digits and _, a letter first, at most 64."
            " Nothing was saved."
        )


def check_value(value: str) -> str:
    """What is odd about the value, for people, or nothing. Raises SecretRefused without ever repeating the value."""
    if "\0" in value:
        raise SecretRefused("The value holds a NUL character, which no environment can carry. Nothing was saved.")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise SecretRefused("The value holds half of a surrogate pair. Nothing was saved.") from None
    if size > MAX_BYTES:
        raise SecretRefused(f"The value is larger than {MAX_BYTES} bytes. Nothing was saved.")
    if len(value.strip()) < MIN_LENGTH:
        raise SecretRefused(
            f"The value has fewer than {MIN_LENGTH} characters: masking it would hide ordinary text in every log."
            " Nothing was saved."
        )
    if value.endswith(("\n", "\r")):
        return "The value ends with a line break. Most services take it for another value: save it again without."
    if value != value.strip():
        return "The value starts or ends with blanks. Save it again without if that was not meant."
    return ""
