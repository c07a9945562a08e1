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
from engine.sandbox.files import Beneath, Entry
from engine.sandbox.limits import MEGABYTE
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
_PIECE = 1024 * 1024


def outputs(contract: Contract, folder: Beneath) -> tuple[Output, ...]:
    """Every file the step left. One that is no plain file, or too large, is listed with its problem and not read.

    What is too much to be listed is one last row, `left_out`. What the step declares is always listed.
    """
    budget, names = LARGEST_SCANNED, MOST_NAMES
    found: list[Output] = []
    left_out: list[Entry] = []
    declared = set(contract.ask.step.context_output)
    for entry in folder.listing(most=contract.limits.output_files + 1):
        if entry.kind is Kind.FOLDER:
            continue
        names -= len(entry.relative)
        if (names < 0 or len(found) >= MOST_LISTED) and entry.relative not in declared:
            left_out.append(entry)
        elif entry.kind is not Kind.FILE or entry.links > 1:
            found.append(Output(entry.relative, entry.size, problem=NotRegular.reason))
        elif entry.size > contract.limits.file_mb * MEGABYTE:
            found.append(Output(entry.relative, entry.size, problem=TooLarge.reason))
        elif entry.size > budget:
            found.append(Output(entry.relative, entry.size, problem="not_scanned"))
        else:
            budget -= entry.size
            found.append(_read(contract, folder, entry))
    if left_out:
        size = sum(entry.size for entry in left_out)
        found.append(Output(f"({len(left_out)} more files)", size, problem="left_out"))
    return tuple(_masked(contract, output) for output in found)


def validate(contract: Contract, folder: Beneath, listeners: Listeners) -> ValidationReport:
    """The declared outputs are there, and the step's validation block holds."""
    step = contract.ask.step
    declared = ValidationReport(tuple(_declared(folder, name, contract) for name in step.context_output))
    rules = step.validation
    if not rules.files and not rules.db:
        return declared
    return declared + check_all(rules, _reader(folder), _query(listeners))


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


def _declared(folder: Beneath, name: str, contract: Contract) -> Check:
    where = f"context_output {name}"
    try:
        with folder.open(name, contract.limits.file_mb * MEGABYTE):
            return Check("output", where, Status.PASSED)
    except Absent:
        return Check("output_missing", where, Status.FAILED, "The step declares this file and did not write it.")
    except FileRefused as refused:
        return Check(refused.reason, where, Status.FAILED, refused.detail)


def _read(contract: Contract, folder: Beneath, entry: Entry) -> Output:
    digest, size, hit = hashlib.sha256(), 0, False
    overlap = b""
    keep = max(contract.masker.longest - 1, 0)
    try:
        with folder.open(entry.relative, entry.size) as file:
            while piece := file.read(min(_PIECE, entry.size + 1 - size)):
                size += len(piece)
                digest.update(piece)
                hit = hit or contract.masker.finds(overlap + piece)
                overlap = (overlap + piece)[-keep:] if keep else b""
    except FileRefused as refused:
        return Output(entry.relative, entry.size, problem=refused.reason)
    if size > entry.size:
        return Output(entry.relative, size, problem=TooLarge.reason)
    return Output(entry.relative, size, digest.hexdigest(), contains_secret=hit)


def _reader(folder: Beneath) -> Callable[[str], bytes | None]:
    def read(name: str) -> bytes | None:
        try:
            return folder.read(name, LARGEST_VALIDATED)
        except Absent:
            return None
        except FileRefused as refused:
            raise FileUnreadable(f"{refused.reason}, {refused.detail.rstrip('.')}") from None

    return read


def _query(listeners: Listeners) -> Callable[[str, int], Sequence[Mapping[str, Any]]]:
    def query(sql: str, most: int) -> Sequence[Mapping[str, Any]]:
        return listeners.query(sql, most)

    return query
