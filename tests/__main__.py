"""The whole suite, as `make test` runs it: on SQLite, and what is marked `databases` on PostgreSQL at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from tests.services import servers

PYTEST = [sys.executable, "-m", "pytest", "-q", *sys.argv[1:]]


def main() -> int:
    if servers.postgresql_programs() is None:
        everything = subprocess.run(PYTEST).returncode
        print("\n*** LEFT OUT: the tests marked `databases` on PostgreSQL: it is not on this machine. ***")
        return everything or int(bool(os.environ.get("CI")))
    with servers.postgresql() as url, tempfile.TemporaryFile("w+") as said:
        environment = {**os.environ, "PULSE_TEST_DATABASE_URL": url}
        command = [*PYTEST, "-m", "databases"]
        with subprocess.Popen(command, env=environment, stdout=said, stderr=subprocess.STDOUT) as again:
            try:
                everything = subprocess.run(PYTEST).returncode
                again.wait()
            finally:
                again.terminate()
        said.seek(0)
        print("\nThe same state, lease, delivery and ledger tests on PostgreSQL:", said.read(), sep="\n", flush=True)
        return everything or again.returncode


if __name__ == "__main__":
    sys.exit(main())
