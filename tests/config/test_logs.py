"""With a file for the details the terminal has warnings and errors only."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from config import logs
from tests.product import PRELUDE, ROOT

SAYS = """
import logging
for name in ("django-q", "daphne.server", "pulse.access", "apps.runs"):
    logging.getLogger(name).info("detail of %s", name)
    logging.getLogger(name).warning("warning of %s", name)
"""


def said(data: Path, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PULSE_", "DJANGO_"))}
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + SAYS, "{}"],
        cwd=ROOT,
        env={**clean, "PULSE_DATA": str(data), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout + done.stderr


def test_the_terminal_is_quiet_and_the_file_has_everything(tmp_path: Path) -> None:
    file = tmp_path / "pulse.log"
    terminal = said(tmp_path, PULSE_LOG=str(file))
    assert "detail of" not in terminal
    assert terminal.count("warning of") == 4
    assert file.read_text().count("detail of") == file.read_text().count("warning of") == 4


def test_without_a_file_everything_goes_to_standard_error(tmp_path: Path) -> None:
    assert said(tmp_path).count("detail of") == 4


def test_a_file_that_grew_too_large_gives_way_to_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LARGEST", 1000)
    writers = [logs.LogFile(tmp_path / "pulse.log", delay=True) for _ in range(2)]
    for number in range(60):
        writers[number % 2].emit(logging.LogRecord("x", logging.INFO, "", 0, f"line {number:040}", None, None))
    for writer in writers:
        writer.close()
    assert (tmp_path / "pulse.log").stat().st_size <= 1100
    assert (tmp_path / "pulse.log.1").stat().st_size <= 1100
    assert "line " + "59".rjust(40, "0") in (tmp_path / "pulse.log").read_text()


def line(file: logs.LogFile, text: str) -> None:
    file.handle(logging.LogRecord("x", logging.INFO, "", 0, text, None, None))


def test_a_line_that_cannot_be_written_is_nobodys_error(capsys: pytest.CaptureFixture[str]) -> None:
    file = logs.LogFile("/dev/full", delay=True)
    for number in range(2000):
        line(file, f"line {number}")
    file.close()
    assert capsys.readouterr().err == "The log /dev/full cannot be written: No space left on device.\n"


def test_once_it_can_be_written_again_the_log_says_how_many_lines_it_lost(tmp_path: Path) -> None:
    name = tmp_path / "pulse.log"
    name.symlink_to("/dev/full")
    file = logs.LogFile(name, delay=True)
    line(file, "one")
    line(file, "two")
    name.unlink()
    line(file, "three")
    line(file, "four")
    file.close()
    assert name.read_text() == "\n[2 lines before this one could not be written]\nthree\nfour\n"


def test_a_folder_that_is_gone_and_a_record_that_cannot_be_formatted_raise_nothing(tmp_path: Path) -> None:
    file = logs.LogFile(tmp_path / "gone" / "pulse.log", delay=True)
    line(file, "one")
    file = logs.LogFile(tmp_path / "pulse.log", delay=True)
    file.handle(logging.LogRecord("x", logging.INFO, "", 0, "%d", ("no number",), None))
    line(file, "two")
    file.close()
    assert (tmp_path / "pulse.log").read_text() == "two\n"
