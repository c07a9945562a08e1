"""The whole suite, as `make test` runs it: on SQLite, then what is marked `databases` again on PostgreSQL."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.services import servers

PYTEST = [sys.executable, "-m", "pytest", "-q", *sys.argv[1:]]


def main() -> int:
    everything = subprocess.run(PYTEST).returncode
    if servers.postgresql_programs() is None:
        print("\n*** LEFT OUT: the tests marked `databases` on PostgreSQL: it is not on this machine. ***")
        return everything or int(bool(os.environ.get("CI")))
    # Not at the same time, though it would take two minutes less: two cores are what many of these tests count on.
    print("\nThe same state, lease, delivery and ledger tests again, on PostgreSQL:", flush=True)
    with servers.postgresql() as url:
        environment = {**os.environ, "PULSE_TEST_DATABASE_URL": url}
        again = subprocess.run([*PYTEST, "-m", "databases"], env=environment).returncode
    return everything or again


if __name__ == "__main__":
    sys.exit(main())
