"""CVE-2026-87766: bubblewrap before 0.12 makes mount points through links that a step planted in its folder.

Policies here are flat, so that nothing lies below a folder that a step can write and the fault cannot be reached. The
check says whether this bubblewrap has it, for those who use it elsewhere.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from engine.sandbox.checks import Check
from engine.sandbox.host import HostTools

NAME = "mount points through planted links (CVE-2026-87766)"


def check(tools: HostTools, data_root: Path) -> Check:
    with tempfile.TemporaryDirectory(prefix=".planted-", dir=data_root) as text:
        folder = Path(text)
        folder.chmod(0o711)
        victim, writable = folder / "victim", folder / "writable"
        for place in (victim, writable):
            place.mkdir()
            place.chmod(0o777)
        (writable / "sub").symlink_to(f"/oldroot{victim}")
        ended = _launch(tools, writable)
        hit = any(victim.iterdir())
    if hit:
        cause = (
            f"bubblewrap {tools.bwrap.version} has it; steps cannot reach it: no mount lies below a folder of theirs"
        )
        return Check(NAME, False, cause, "Update to bubblewrap 0.12 or newer when there is one.", required=False)
    return Check(NAME, True, note=f"bubblewrap {tools.bwrap.version} refuses it (exit {ended})")


def _launch(tools: HostTools, writable: Path) -> int:
    flags = ["--unshare-user", "--unshare-pid", "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib64", "/lib64"]
    flags += ["--symlink", "usr/lib", "/lib", "--bind", str(writable), "/work", "--dir", "/work/sub/made"]
    return subprocess.run(
        [tools.bwrap.path, *flags, "--", "/usr/bin/true"],
        capture_output=True,
        timeout=20,
        check=False,
        env={},
        **tools.runner.process,
    ).returncode
