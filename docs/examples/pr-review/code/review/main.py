"""Report on the size of a change.

Purpose: tell reviewers how large the change of a pull request is before they open it.
Required configuration: VAR_LARGE_CHANGE_LINES, the number of lines above which a change is called large.
Inputs: the run's trigger; argv[1] is the gate's `decision.json`.
Outputs: `review.json` for programs, `report.md` for people.
Side effects: none.
How it is run: behind the branch `route`, when the gate chose `review`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from shared import pull_request
from shared.pull_request import PullRequest

import pulse

SMALL_CHANGE_LINES = 50


def size_of(lines: int | None, large: int) -> str:
    """`small`, `medium` or `large`; `unknown` when the lines are not known."""
    if lines is None:
        return "unknown"
    if lines > large:
        return "large"
    return "small" if lines <= SMALL_CHANGE_LINES else "medium"


def report(pull: PullRequest, size: str, reason: str) -> str:
    """The report in Markdown. The title is the author's own words, so it is quoted as code."""
    title = pull.title.replace("`", "'") or "(no title)"
    rows = {
        "files": pull.changed_files,
        "lines added": pull.additions,
        "lines removed": pull.deletions,
        "commits": pull.commits,
    }
    table = "\n".join(f"| {name} | {'not known' if count is None else count} |" for name, count in rows.items())
    return (
        f"# {pull.repository}#{pull.pull_number}\n\n`{title}`\n\n"
        f"A **{size}** change at `{pull.head_sha}`; reviewed, since {reason}.\n\n"
        f"| what | how many |\n| --- | ---: |\n{table}\n"
    )


def main() -> None:
    decision = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    pull = pull_request.read(pulse.trigger())
    size = size_of(pull.lines, int(os.environ["VAR_LARGE_CHANGE_LINES"]))
    print(f"{pull.repository}#{pull.pull_number}: {size} change, files {pull.changed_files}, lines {pull.lines}")
    if size == "unknown":
        pulse.concern("The trigger does not say how many lines changed, so the size of the change is not known.")
    pulse.write_json(
        "review.json",
        {
            "repository": pull.repository,
            "pull_number": pull.pull_number,
            "head_sha": pull.head_sha,
            "changed_files": pull.changed_files,
            "additions": pull.additions,
            "deletions": pull.deletions,
            "commits": pull.commits,
            "lines": pull.lines,
            "size": size,
        },
    )
    (pulse.output_dir / "report.md").write_text(report(pull, size, decision["reason"]), encoding="utf-8")


main()
