"""A throw-away environment: built as the runner, with one tiny wheel, imported by the interpreter of steps."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path

from engine import dependencies
from engine.dependencies import EnvironmentFailed
from engine.places import DataPlaces, WorkflowPlaces
from engine.sandbox.checks import Check
from engine.sandbox.host import HostTools

NAME = "dependency environments can be built"
CURE = "apt-get install python3, make sure that the lock's uv is installed, or set PULSE_PYTHON to another interpreter."
_INFO = "pulse_doctor_trial-1.0.dist-info"


def check(tools: HostTools, data_root: Path) -> Check:
    folder = Path(tempfile.mkdtemp(prefix=".trial-", dir=data_root))
    try:
        folder.chmod(0o711)
        return _try(tools, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _try(tools: HostTools, folder: Path) -> Check:
    data, workflow, wheels = DataPlaces(folder), WorkflowPlaces(folder / "workflow"), folder / "wheels"
    for place in (data.environments, workflow.root, wheels, data.library):
        place.mkdir()
        place.chmod(0o755)
    _write_wheel(wheels)
    workflow.requirements.write_text("pulse-doctor-trial==1.0\n")
    settings = {"UV_FIND_LINKS": str(wheels), "UV_OFFLINE": "1"}
    try:
        environment = dependencies.ensure(workflow, data, tools, settings)
    except (EnvironmentFailed, OSError) as error:
        return Check(NAME, False, str(error), CURE)
    done = subprocess.run(
        [environment.root / "bin" / "python", "-I", "-c", "import pulse_doctor_trial"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={},
        cwd="/",
        **tools.runner.process,
    )
    said = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
    return Check(NAME, done.returncode == 0, "" if done.returncode == 0 else said[0], CURE)


def _write_wheel(folder: Path) -> None:
    path = folder / "pulse_doctor_trial-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("pulse_doctor_trial.py", "")
        wheel.writestr(f"{_INFO}/METADATA", "Metadata-Version: 2.1\nName: pulse-doctor-trial\nVersion: 1.0\n")
        wheel.writestr(
            f"{_INFO}/WHEEL", "Wheel-Version: 1.0\nGenerator: pulse\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        names = ("pulse_doctor_trial.py", f"{_INFO}/METADATA", f"{_INFO}/WHEEL", f"{_INFO}/RECORD")
        wheel.writestr(f"{_INFO}/RECORD", "".join(f"{name},,\n" for name in names))
    path.chmod(0o644)
