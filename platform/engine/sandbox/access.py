"""What a uid may do with a file, from its owner, group and mode. The runner has no further groups and no capability."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

READ, WRITE, ENTER = 4, 2, 1


@dataclass(frozen=True)
class Runner:
    """Whom steps run as: one uid, one group, nothing else. It needs no entry in passwd."""

    uid: int
    gid: int

    @property
    def dropped(self) -> bool:
        """Whether a launch has to change the uid, so that the step is not the platform's own user."""
        return self.uid != os.geteuid()

    @property
    def process(self) -> dict[str, Any]:
        """What makes a process of `subprocess` run as it."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []} if self.dropped else {}

    def may(self, status: os.stat_result, wanted: int) -> bool:
        """Whether all the `wanted` bits (READ, WRITE, ENTER) are granted to it."""
        mode = stat.S_IMODE(status.st_mode)
        if status.st_uid == self.uid:
            mode >>= 6
        elif status.st_gid == self.gid or (not self.dropped and status.st_gid in os.getgroups()):
            mode >>= 3
        return mode & wanted == wanted

    def is_kept_from(self, status: os.stat_result) -> bool:
        """Whether it can neither write there nor give itself the right to."""
        return self.dropped and status.st_uid != self.uid and not self.may(status, WRITE)

    def barred_from(self, path: Path) -> Path | None:
        """The first folder on the way to `path` that the runner cannot enter; None when the way is open."""
        parts = os.path.realpath(path).split("/")[1:-1]
        folder = "/"
        for part in ("", *parts):
            folder = os.path.join(folder, part) if part else folder
            try:
                if not self.may(os.stat(folder), ENTER):
                    return Path(folder)
            except OSError:
                return Path(folder)
        return None
