"""The product started as a user starts it: `manage.py up` on a free port, with a data folder that is thrown away."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.error import URLError
from urllib.request import urlopen

from tests.services.servers import free_port

ROOT = Path(__file__).resolve().parents[1]
READY_S = 90.0
END_S = 60.0
ASK_S = 600.0
Value = TypeVar("Value")

# What `ask` runs before the code it was given: the product's settings, on the product's data.
PRELUDE = """
import json, os, sys
sys.path[:0] = [os.getcwd(), os.path.join(os.getcwd(), "platform")]
os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
import django
django.setup()
given = json.loads(sys.argv[1])
def answer(value): print("ANSWER " + json.dumps(value, default=str))
"""


class Product:
    """`with Product() as product`: up and answering; every process of it is gone afterwards."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.port = free_port()
        self.data = Path(tempfile.mkdtemp(prefix="pulse-product-"))
        os.chmod(self.data, 0o711)
        self.url = f"http://127.0.0.1:{self.port}"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("PULSE_", "DJANGO_"))},
            "PULSE_DATA": str(self.data),
            "PULSE_PORT": str(self.port),
            "PULSE_BASE_URL": self.url,
            **environment,
        }
        self.environment.pop("DATABASE_URL", None)
        self.log = self.data / "up.log"
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.data, ignore_errors=True)

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "manage.py", "up", *self._arguments],
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.until(self.answers, READY_S)

    def stop(self) -> int:
        """As Ctrl-C does it; what will not end is killed. The exit code."""
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(END_S)
            except subprocess.TimeoutExpired:
                for pid in self.processes():
                    _kill(pid)
                _kill(self._process.pid)
        return self._process.wait()

    def answers(self) -> bool:
        try:
            with urlopen(f"{self.url}/healthz", timeout=5) as response:
                return bool(response.status == 200)
        except (URLError, OSError):
            return False

    def processes(self, command: str = "") -> list[int]:
        """The product's processes below `up`, or those of one `manage.py` command."""
        mark = f"PULSE_DATA={self.data}".encode()
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                line = Path("/proc", name, "cmdline").read_bytes().split(b"\0")
                ours = mark in Path("/proc", name, "environ").read_bytes().split(b"\0")
                if ours and b"up" not in line[2:3] and (not command or command.encode() in line[2:3]):
                    found.append(int(name))
        return found

    def kill(self, command: str) -> int:
        """`kill -9` of every process of one command (`web`, `worker`, `cluster`); how many there were."""
        pids = self.processes(command)
        for pid in pids:
            _kill(pid)
        return len(pids)

    def ask(self, code: str, **given: Any) -> Any:
        """Run code within the product's own settings and data; what it gave to `answer(...)`."""
        done = subprocess.run(
            [sys.executable, "-c", PRELUDE + code, json.dumps(given)],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=ASK_S,
        )
        answers = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
        if done.returncode or not answers:
            raise AssertionError(f"the product's own code failed:\n{done.stdout}\n{done.stderr}")
        return json.loads(answers[-1].removeprefix("ANSWER "))

    def until(self, what: Callable[[], Value], within_s: float = 60.0) -> Value:
        """The first true answer; AssertionError with the end of the log when there is none in time."""
        deadline = time.monotonic() + within_s
        while True:
            if value := what():
                return value
            if time.monotonic() > deadline:
                raise AssertionError(f"it did not come true within {within_s:.0f} s\n{self.log.read_text()[-5000:]}")
            time.sleep(0.05)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
