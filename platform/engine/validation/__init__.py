"""Validation blocks: what is asked of a step's outputs, and whether it holds."""

from __future__ import annotations

from engine.validation.rules import ConsistencyCheck, DatabaseRule, FileRule, JsonCheck, Validation

__all__ = ["ConsistencyCheck", "DatabaseRule", "FileRule", "JsonCheck", "Validation"]
