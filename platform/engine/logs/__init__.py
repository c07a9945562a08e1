"""Logs are files, not rows: masked bytes in order of arrival, and an index of fixed records (DESIGN 6)."""

from __future__ import annotations

from engine.logs.format import Flag, Line, Stream
from engine.logs.masking import Masker
from engine.logs.reader import Found, LogReader
from engine.logs.writer import LogWriter, Seal

__all__ = ["Flag", "Found", "Line", "LogReader", "LogWriter", "Masker", "Seal", "Stream"]
