"""Logs are files, not rows: masked bytes in order of arrival, and an index of fixed records (DESIGN 6)."""

from __future__ import annotations
