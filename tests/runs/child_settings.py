"""The product's settings for processes that a test starts, on the test's own database."""

from __future__ import annotations

import os

from apps.runs import timing
from config.settings import *  # noqa: F403
from config.settings import DATABASES

# The same rules on shorter clocks, before anything reads them; the acceptance tests keep the product's own.
if os.environ.get("PULSE_TEST_HASTE"):
    timing.LEASE_S, timing.RENEW_S, timing.FENCE_MARGIN_S = 4.0, 0.4, 1.5
    timing.LOST_MESSAGE_S, timing.STUCK_CLUSTER_S, timing.START_CLUSTER_S = 2.0, 4.0, 6.0

if "PULSE_TEST_CHILD_DATABASE" in os.environ:
    DATABASES["default"]["NAME"] = os.environ["PULSE_TEST_CHILD_DATABASE"]
