"""What a step left, read by the one way into folders that a step can write, and whether it is what was asked."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.contract import Contract
from engine.runner.ending import Output
from engine.runner.listeners import Listeners
from engine.sandbox.errors import Absent, FileRefused, NotRegular, TooLarge
from engine.sandbox.limits import MEGABYTE
from engine.sandbox.takeover import Kept
from engine.sandbox.tree import Kind
from engine.validation import Check, FileUnreadable, Status, ValidationReport, check_all

LARGEST_VALIDATED = 16 * MEGABYTE
LARGEST_SCANNED = 64 * MEGABYTE
"""Of all files of an attempt together: what is read to find secrets in it and to take its digest."""
MOST_LISTED = 5000
MOST_NAMES = MEGABYTE
"""Of the names of the files that are listed, together: an attempt's row is read whole, on every page of its run."""
RULE_FAULTY = "rule_faulty"
"""A rule could not be applied, and no check failed: nothing is known against the output."""
NOT_KEPT = "not_kept"
"""It could not be taken over, or was beyond the limits: nothing is known of it."""
_PIECE = 1024 * 1024


def outputs(contract: Contract, kept: Kept) -> tuple[Output, ...]:
    """Every file the step left. One that is no plain file, or too large, is listed with its problem and not read.

    What is too much to be listed is one last row, `left_out`. What the step declares is always listed.
    """
    budget, names = LARGEST_SCANNED, MOST_NAMES
    found: list[Output] = []
    left_out: list[int] = []
    declared = set(contract.ask.step.context_output)
    sizes = {entry.relative: entry.size for entry in kept.listing() if entry.kind is Kind.FILE}
    sizes |= {name: odd.size for name, odd in kept.odd.items()}
    for name, size in sorted(sizes.items()):
        names -= len(name)
        if (names < 0 or len(found) >= MOST_LISTED) and name not in declared:
            left_out.append(size)
        elif name in kept.odd:
            found.append(Output(name, size, problem=kept.odd[name].refusal.reason))
        elif size > contract.limits.file_mb * MEGABYTE:
            found.append(Output(name, size, problem=TooLarge.reason))
        elif size > budget:
            found.append(Output(name, size, problem="not_scanned"))
        else:
            budget -= size
            found.append(_read(contract, kept, name, size))
    if left_out:
        found.append(Output(f"({len(left_out)} more files)", sum(left_out), problem="left_out"))
    if kept.over:
        found.append(Output("(more files, not counted)", 0, problem=NOT_KEPT))
    return tuple(_masked(contract, output) for output in found)


def validate(contract: Contract, kept: Kept, listeners: Listeners) -> ValidationReport:
    """The declared outputs are there, and the step's validation block holds."""
    step = contract.ask.step
    declared = ValidationReport(tuple(_declared(kept, name, contract) for name in step.context_output))
    rules = step.validation
    if not rules.files and not rules.db:
        return declared
    return declared + check_all(rules, _reader(kept), _query(listeners))


def problem_of(report: ValidationReport) -> str:
    """The reason below `validation_failed`: of the first check that failed; `rule_faulty` when only rules did."""
    if report.status is Status.FAULTY:
        return RULE_FAULTY
    for check in report.checks:
        if check.status is Status.FAILED:
            return (
                check.name if check.name in {NotRegular.reason, TooLarge.reason, "output_missing"} else "check_failed"
            )
    return ""


def _masked(contract: Contract, output: Output) -> Output:
    """A secret may stand in the name of a file as well, and bytes that are no text, which no database keeps."""
    name, masker = os.fsencode(output.path), contract.masker
    path = masker.mask(name).decode("utf-8", "replace")
    return replace(output, path=path, contains_secret=output.contains_secret or masker.finds(name))


def _declared(kept: Kept, name: str, contract: Contract) -> Check:
    where = f"context_output {name}"
    try:
        with kept.open(name, contract.limits.file_mb * MEGABYTE):
            return Check("output", where, Status.PASSED)
    except Absent:
        return Check("output_missing", where, Status.FAILED, "The step declares this file and did not write it.")
    except FileRefused as refused:
        return Check(refused.reason, where, Status.FAILED, refused.detail)


def _read(contract: Contract, kept: Kept, name: str, size: int) -> Output:
    digest, hit = hashlib.sha256(), False
    overlap = b""
    keep = max(contract.masker.longest - 1, 0)
    try:
        with kept.open(name, size) as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
                hit = hit or contract.masker.finds(overlap + piece)
                overlap = (overlap + piece)[-keep:] if keep else b""
    except FileRefused as refused:
        return Output(name, size, problem=refused.reason)
    return Output(name, size, digest.hexdigest(), contains_secret=hit)


def _reader(kept: Kept) -> Callable[[str], bytes | None]:
    def read(name: str) -> bytes | None:
        try:
            return kept.read(name, LARGEST_VALIDATED)
        except Absent:
            return None
        except FileRefused as refused:
            raise FileUnreadable(f"{refused.reason}, {refused.detail.rstrip('.')}") from None

    return read


def _query(listeners: Listeners) -> Callable[[str, int], Sequence[Mapping[str, Any]]]:
    def query(sql: str, most: int) -> Sequence[Mapping[str, Any]]:
        return listeners.query(sql, most)

    return query
