"""Which release this is: the version and, in a clone, the commit."""

from __future__ import annotations

import tomllib
from pathlib import Path


def find(root: Path) -> str:
    """`0.1.0`, or `0.1.0+1a2b3c4` in a clone; read from files, no program is started."""
    version = str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])
    commit = _commit(root / ".git")
    return f"{version}+{commit[:7]}" if commit else version


def _commit(git: Path) -> str:
    try:
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        name = head.removeprefix("ref: ")
        if (git / name).is_file():
            return (git / name).read_text().strip()
        packed = (git / "packed-refs").read_text().splitlines()
    except OSError:
        return ""
    return next((line.split()[0] for line in packed if line.endswith(f" {name}")), "")
