"""What every test may use. The cast: `owner`, `editor`, `operator`, `viewer` of `team`, and an `outsider`."""

from __future__ import annotations
