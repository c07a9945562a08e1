"""Say why a pull request was skipped.

Purpose: leave a result behind for pull requests that are not reviewed, so that no run ends without one.
Required configuration: none.
Inputs: argv[1], the gate's `decision.json`.
Outputs: `skipped.json`.
Side effects: none.
How it is run: behind the branch `route`, when the gate chose `skip`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pulse

decision = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
print(f"{decision['repository']}#{decision['pull_number']} is skipped, since {decision['reason']}")
pulse.write_json("skipped.json", decision)
