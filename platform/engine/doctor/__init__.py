"""What stands in the way of running steps on this host, and what mends it."""

from __future__ import annotations
