"""Serve a seeded product for a browser: `python -m tests.browser.serve PORT DEMO.json`, which gets the seed's ids.

Takes the test settings, with the address it is served at and the static files as they lie in the source tree.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main(port: int, ids: Path) -> None:
    sys.path[:0] = [str(ROOT), str(ROOT / "platform")]
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    import django
    from django.conf import settings

    settings.PULSE_BASE_URL = f"http://127.0.0.1:{port}"
    settings.PULSE_ORIGINS = settings.CSRF_TRUSTED_ORIGINS = [settings.PULSE_BASE_URL]
    settings.CONTENT_SECURITY_POLICY["DIRECTIVES"]["connect-src"] = ["'self'", f"ws://127.0.0.1:{port}"]
    settings.WHITENOISE_USE_FINDERS = True
    django.setup()
    from django.core.management import call_command

    from tests.browser.demo import seed

    call_command("migrate", verbosity=0)
    demo = seed()
    runs = {name: str(run) for name, run in demo.runs.items()}
    part = ids.with_suffix(".part")
    part.write_text(json.dumps({"runs": runs, "delivery": str(demo.delivery), "session": str(demo.session)}))
    part.rename(ids)
    from config import serve

    serve.serve(host="127.0.0.1", port=port)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
