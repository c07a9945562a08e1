"""Print 100,000 coloured lines, some of them no UTF-8, then fail with a traceback.

Purpose: a log that is as large and as ugly as real ones, for the log view.
Required configuration: VAR_LINES, how many lines are printed.
Inputs: none.
Outputs: `count.json`: lines, bytes and sha-256 of what was printed to standard output before the failure.
Side effects: none.
How it is run: by hand. It always fails: its outcome is script_error.
"""

from __future__ import annotations

import hashlib
import os
import sys

import pulse

LEVELS = (
    (b"DEBUG", b"\x1b[90m"),
    (b"INFO", b"\x1b[32m"),
    (b"WARNING", b"\x1b[1;33m"),
    (b"ERROR", b"\x1b[31m"),
    (b"NOTICE", b"\x1b[38;5;45m"),
    (b"TRACE", b"\x1b[38;2;180;120;255m"),
)
RESET = b"\x1b[0m"
# A lone continuation byte, half of a character, a UTF-16 mark, an overlong slash: each as it turns up in real logs.
BROKEN = (b"\x80", b"caf\xc3", b"\xff\xfe", b"\xc0\xaf")
BROKEN_EACH = 997


def line(number: int) -> bytes:
    """One line, numbered from 1, with its newline."""
    level, colour = LEVELS[number % len(LEVELS)]
    text = b"%s%-7s%s line %06d of the noise, \xe2\x9c\x93 \xc3\xbcber alles" % (colour, level, RESET, number)
    if number % BROKEN_EACH == 0:
        text += b" and then " + BROKEN[number // BROKEN_EACH % len(BROKEN)]
    return text + b"\n"


def make_noise(lines: int) -> None:
    digest, size = hashlib.sha256(), 0
    for number in range(1, lines + 1):
        data = line(number)
        sys.stdout.buffer.write(data)
        digest.update(data)
        size += len(data)
    sys.stdout.buffer.flush()
    pulse.write_json("count.json", {"lines": lines, "bytes": size, "sha256": digest.hexdigest()})


make_noise(int(os.environ["VAR_LINES"]))
raise RuntimeError("that was all the noise there is; this failure is on purpose")
