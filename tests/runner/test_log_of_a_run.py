"""What a step prints arrives whole, at once, in order, and without its secrets."""

from __future__ import annotations

import hashlib
import time

import pytest

from engine.logs import LogReader, Stream
from tests.runner.stage import Silent, Stage

pytestmark = pytest.mark.sandbox

KEY = {"step": {"secrets": ["KEY"]}, "secrets": {"KEY": "correct horse"}, "allowed_secrets": frozenset({"KEY"})}


def test_a_secret_is_masked_on_every_way_out(stage: Stage) -> None:
    code = """
import base64, json, logging, os, subprocess, sys, time, urllib.parse
key = os.environ["SECRET_KEY"]
print(key, flush=True)
print(json.dumps({"key": key}), urllib.parse.quote(key), base64.b64encode(f"u:{key}".encode()).decode())
logging.warning("it is %s", key)
subprocess.run(["sh", "-c", "echo $SECRET_KEY; env | grep SECRET"])
sys.stdout.write(key[:7]); sys.stdout.flush(); time.sleep(0.3); print(key[7:])
os.write(2, key.encode())
raise ValueError(f"bad {key}")
"""
    ran = stage.run(code, **KEY)  # type: ignore[arg-type]
    assert "horse" not in ran.log, ran.log
    assert ran.log.count("***") >= 9
    assert "horse" not in repr(ran.ending)
    assert ran.ending.claims["exception"]["message"] == "bad ***"


def test_the_sessions_own_token_is_masked(stage: Stage) -> None:
    ran = stage.run("import os\nprint(os.environ['PULSE_SESSION_TOKEN'])\n", session_token="pst_" + "A1b2" * 10)
    assert ran.log == "***\n"


def test_bytes_that_are_no_text_come_through(stage: Stage) -> None:
    code = (
        "import os\nlong = b'x' * 5_000_000\n"
        "for piece in (b'\\xff\\xfe ', b'\\xe2\\x98', b'\\x83\\n', b'\\x00\\n', b'50%\\r60%\\r', long, b'\\n'):\n"
        "    os.write(1, piece)\n"
    )
    ran = stage.run(code)
    with LogReader(ran.contract.ask.attempt) as reader:
        data = b"".join(reader.chunks())
    wanted = b"\xff\xfe \xe2\x98\x83\n\x00\n50%\r60%\r" + b"x" * 5_000_000 + b"\n"
    assert data == wanted
    assert ran.ending.seal is not None
    assert (ran.ending.seal["lines"], ran.ending.seal["sha256"]) == (3, hashlib.sha256(wanted).hexdigest())


def test_the_seal_equals_the_scripts_own_count(stage: Stage) -> None:
    code = (
        "import sys\nfor n in range(20_000):\n"
        "    print(f'\\x1b[32m{n}\\x1b[0m', file=sys.stderr if n % 7 else sys.stdout)\n"
    )
    ran = stage.run(code)
    assert ran.ending.seal is not None
    assert ran.ending.seal["lines"] == 20_000
    with LogReader(ran.contract.ask.attempt) as reader:
        errors = [row.text for row in reader.lines(0, 20_000) if row.stream is Stream.ERR]
    assert errors == [f"\x1b[32m{n}\x1b[0m" for n in range(20_000) if n % 7]


def test_the_first_line_is_there_long_before_the_end(stage: Stage) -> None:
    heard = Silent()
    seen: list[tuple[float, bytes]] = []
    began = time.monotonic()

    def grew(lines: int, size: int) -> None:
        if not seen:
            seen.append((time.monotonic() - began, b""))

    heard.log_grew = grew  # type: ignore[method-assign]
    stage.run("import time\nprint('first')\ntime.sleep(2)\n", listeners=heard)
    assert seen[0][0] < time.monotonic() - began - 1


def test_streams_that_were_closed_do_not_end_the_step(stage: Stage) -> None:
    code = (
        "import os, time\nos.close(1)\nos.close(2)\ntime.sleep(0.3)\n"
        "open('/pulse/run/out/x', 'w').write('x')\nos._exit(0)\n"
    )
    ran = stage.run(code)
    assert ran.ending.outcome == "succeeded"
    assert (ran.out / "x").read_text() == "x"
