"""One real launch that shows whether this host can confine a step."""

from __future__ import annotations
