"""Leaves three marks, and the token it will have had: of a session that soon has ended."""

from __future__ import annotations

import hashlib
import os

import pulse

token, run = os.environ["PULSE_SESSION_TOKEN"], os.environ["RUN_ID"]
writer = hashlib.sha256(token.encode()).hexdigest()
pulse.call("mutate_workflow_db", sql="INSERT INTO present VALUES (?, 'before', ?)", params=[run, token])
for n in range(3):
    mark = [os.environ["VAR_FLOW"], run, "before", writer, n]
    pulse.call("mutate_workflow_db", sql="INSERT INTO marks VALUES (?, ?, ?, ?, ?)", params=mark)
