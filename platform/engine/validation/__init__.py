"""Validation blocks: what is asked of a step's outputs, whether that can be met at all, and whether it holds."""

from __future__ import annotations

from engine.validation.confined import check_all
from engine.validation.impossible import rule_problems
from engine.validation.report import Check, Status, ValidationReport
from engine.validation.rules import ConsistencyCheck, DatabaseRule, FileRule, JsonCheck, Validation
from engine.validation.running import FileUnreadable, QueryFailed, check_database, check_files

__all__ = [
    "Check",
    "ConsistencyCheck",
    "DatabaseRule",
    "FileRule",
    "FileUnreadable",
    "JsonCheck",
    "QueryFailed",
    "Status",
    "Validation",
    "ValidationReport",
    "check_all",
    "check_database",
    "check_files",
    "rule_problems",
]
