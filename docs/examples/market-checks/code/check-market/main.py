"""Check the quotes of one market.

Purpose: find quotes that moved further in a day than the region tolerates.
Required configuration: VAR_TOLERANCE_PERCENT, which each group sets for its region.
Inputs: the parameters `market` and `limit`.
Outputs: `checks.json`: how many were checked, and the suspicious ones.
Side effects: none. The quotes are made up, and the same on every run.
How it is run: by hand for a group, or by the trigger `market-closed`, whose mappings choose group and market.
"""

from __future__ import annotations

import hashlib
import os

import pulse


def quotes(market: str, group: str, count: int) -> list[tuple[str, float]]:
    """Symbol and the day's move in percent, from -5 to 5, for the first `count` quotes of a market in a region."""
    made = []
    for number in range(count):
        symbol = f"{market[:2].upper()}{number:04d}"
        drawn = int.from_bytes(hashlib.sha256(f"{group}/{symbol}".encode()).digest()[:4], "big")
        made.append((symbol, round(drawn / 2**32 * 10 - 5, 2)))
    return made


def main() -> None:
    given = pulse.params()
    tolerance = float(os.environ["VAR_TOLERANCE_PERCENT"])
    group = os.environ["VAR_GROUP_NAME"]
    moves = quotes(given["market"], group, given["limit"])
    suspicious = [{"symbol": symbol, "move_percent": move} for symbol, move in moves if abs(move) > tolerance]
    print(f"{group}: {len(moves)} {given['market']}, {len(suspicious)} moved more than {tolerance} %")
    for quote in suspicious:
        print(f"  {quote['symbol']} {quote['move_percent']:+.2f} %")
    pulse.write_json(
        "checks.json",
        {
            "group": group,
            "market": given["market"],
            "tolerance_percent": tolerance,
            "checked": len(moves),
            "suspicious": suspicious,
        },
    )


main()
