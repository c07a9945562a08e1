"""The whole suite, as `make test` runs it: on SQLite, then what is marked `databases` again on PostgreSQL."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.services import servers

PYTEST = [sys.executable, "-m", "pytest", "-q"]


def main() -> int:
    everything = subprocess.run([*PYTEST, *sys.argv[1:]]).returncode
    if servers.postgresql_programs() is None:
        print("\n*** LEFT OUT: the tests marked `databases` on PostgreSQL: it is not on this machine. ***")
        return everything or int(bool(os.environ.get("CI")))
    print("\nThe same state, lease, delivery and ledger tests again, on PostgreSQL:", flush=True)
    with servers.postgresql() as url:
        environment = {**os.environ, "PULSE_TEST_DATABASE_URL": url}
        again = subprocess.run([*PYTEST, "-m", "databases", *sys.argv[1:]], env=environment).returncode
    return everything or again


if __name__ == "__main__":
    sys.exit(main())
