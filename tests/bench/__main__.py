"""`python -m tests.bench [row ...]`: measure and print the table. It never fails on a clock; it says what was met."""

from __future__ import annotations

import argparse
import sys
import traceback

from tests.bench import live, measures
from tests.bench.measures import Measure
from tests.bench.rows import Row, table
from tests.bench.stage import Stage, stage

ROWS: dict[str, Measure] = {
    "forty-steps": measures.forty_steps,
    "steps-a-second": measures.steps_a_second,
    "tool-call": measures.tool_call,
    "tool-call-http": measures.tool_call_http,
    "first-line": measures.first_line,
    "print-to-browser": live.print_to_browser,
    "log-opening": live.log_opening,
    "deliveries": measures.deliveries,  # last: what it leaves to be sealed and cleared away weighs on what follows
}


def main() -> int:
    wanted = _arguments()
    rows: list[Row] = []
    failed: list[str] = []
    print("Starting the product on a free port, with data that is thrown away ...", flush=True)
    with stage() as on:
        for name in wanted:
            print(f"  measuring {name} ...", flush=True)
            row = _measure(name, on)
            (rows.append(row) if row else failed.append(name))
    print(f"\n{table(rows)}")
    for name in failed:
        print(f"NOT MEASURED: {name}; why stands above.")
    return 1 if failed else 0


def _arguments() -> list[str]:
    parser = argparse.ArgumentParser(prog="tests.bench", description=__doc__)
    parser.add_argument("row", nargs="*", help=f"which rows; all by default: {', '.join(ROWS)}")
    wanted = parser.parse_args().row or list(ROWS)
    if unknown := [name for name in wanted if name not in ROWS]:
        parser.error(f"there is no row {unknown[0]!r}; there are: {', '.join(ROWS)}")
    return wanted


def _measure(name: str, on: Stage) -> Row | None:
    try:
        return ROWS[name](on)
    except Exception:  # noqa: BLE001 - one row that fails leaves the others; it is named at the end
        traceback.print_exc()
        return None


if __name__ == "__main__":
    sys.exit(main())
