"""Time-ordered identifiers (UUID version 7, RFC 9562 section 5.7)."""

from __future__ import annotations

import os
import time
import uuid
from datetime import datetime


def uuid7() -> uuid.UUID:
    """A new UUIDv7: 48 bits of Unix milliseconds, then 74 random bits."""
    milliseconds = time.time_ns() // 1_000_000
    random_bits = int.from_bytes(os.urandom(10), "big")
    value = (milliseconds & (1 << 48) - 1) << 80
    value |= 0x7 << 76 | (random_bits >> 68) << 64 | 0b10 << 62 | random_bits & (1 << 62) - 1
    return uuid.UUID(int=value)


def first_of(moment: datetime) -> uuid.UUID:
    """Not after any `uuid7` made from then on: where an index of ids begins for a time."""
    return uuid.UUID(int=int(moment.timestamp() * 1000) << 80)
