"""How often something may happen, counted in the cache: small, shared between processes where Redis is."""

from __future__ import annotations

import math
import time

from django.core.cache import cache


def spend(what: str, who: str, *, most: int, seconds: int) -> int:
    """0 when it may happen once more in this window, else how many seconds to wait. Counts the attempt."""
    now = time.time()
    window = math.floor(now / seconds)
    key = f"limit:{what}:{who}:{window}"
    cache.add(key, 0, seconds * 2)
    try:
        count = cache.incr(key)
    except ValueError:  # the cache dropped it between the two lines
        return 0
    return 0 if count <= most else math.ceil((window + 1) * seconds - now)


def spent(what: str, who: str, *, most: int, seconds: int) -> int:
    """As `spend`, without counting: how many seconds to wait when the window is spent already."""
    now = time.time()
    window = math.floor(now / seconds)
    count = cache.get(f"limit:{what}:{who}:{window}", 0)
    return 0 if count < most else math.ceil((window + 1) * seconds - now)
