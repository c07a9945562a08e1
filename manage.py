#!/usr/bin/env python3
"""Pulse's command line: `manage.py up` starts the product, `manage.py help` lists the rest."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent


def main() -> None:
    # platform/ is a source root, not a package: a package of that name would shadow the standard library's module.
    sys.path[:0] = [str(ROOT), str(ROOT / "platform")]
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    from config import before

    command = "" if {"-h", "--help"} & set(sys.argv) else "".join(sys.argv[1:2])
    try:
        if command == "up":
            before.check(ROOT)
        if command in before.ON_DATA and os.environ["DJANGO_SETTINGS_MODULE"] == "config.settings":
            before.check_there(ROOT)
        if command == "run_workflow":
            before.take_port(ROOT)
        execute_from_command_line(sys.argv)
    except (ImproperlyConfigured, before.UpRefused) as wrong:
        sys.exit(f"pulse: {wrong}")


if __name__ == "__main__":
    main()
