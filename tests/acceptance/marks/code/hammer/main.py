"""Says that it is there, waits for its orders, then makes its calls, rightful and wrongful, and tells of each.

Every mark it writes carries its name; every read must show its own marks, all of them, and nobody else's workflow.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import socket
import time
from collections import Counter

import pulse
from pulse import client

TOKEN, RUN, FLOW = os.environ["PULSE_SESSION_TOKEN"], os.environ["RUN_ID"], os.environ["VAR_FLOW"]
CALLS = int(os.environ["VAR_CALLS"])
WRITER = hashlib.sha256(TOKEN.encode()).hexdigest()
INSERT = "INSERT INTO marks VALUES (?, ?, ?, ?, ?)"
SEEN = (
    "SELECT (SELECT count(*) FROM marks WHERE writer = ? AND n >= 0) AS mine,"
    " (SELECT max(flow) FROM marks) AS last, (SELECT min(flow) FROM marks) AS first"
)
told = {"writes": 0, "calls": 0, "wrong": [], "refused": Counter(), "tries": {}}


def rightful(tool, **arguments):
    """A call that must be served. `busy` says that nothing was done, on a machine with too much to do: once more."""
    while True:
        told["calls"] += 1
        try:
            return pulse.call(tool, **arguments)
        except pulse.ToolError as error:
            if error.code != "busy":
                told["refused"][error.code] += 1
                return None


def write():
    if rightful("mutate_workflow_db", sql=INSERT, params=[FLOW, RUN, "hammer", WRITER, told["writes"]]):
        told["writes"] += 1


def read():
    answer = rightful("query_workflow_db", sql=SEEN, params=[WRITER])
    if answer is None:
        return
    row = answer["rows"][0]
    if (row["mine"], {row["first"], row["last"]} - {None}) != (told["writes"], {FLOW} if row["first"] else set()):
        told["wrong"].append(row)


def try_as(token, session):
    """One call on the step's own socket with what it was given; the code of the answer."""
    stolen = {"sql": INSERT, "params": [FLOW, RUN, "stolen", WRITER, -1]}
    call = {"id": client.new_id(), "tool": "mutate_workflow_db", "arguments": stolen}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ["PULSE_TOOLS_SOCKET"])
        for message in ({"v": 1, "token": token}, {**call, "session": session} if session else call):
            body = json.dumps(message).encode()
            connection.sendall(len(body).to_bytes(4, "big") + body)
        with connection.makefile("rb") as answers:
            answer = json.loads(answers.read(int.from_bytes(answers.read(4), "big")))
    return "served" if answer["success"] else answer["error"]["code"]


def orders(of):
    while True:
        answer = rightful("query_workflow_db", sql="SELECT tries FROM go WHERE run = ?", params=[of])
        if answer is None:
            raise SystemExit(f"refused at the start: {told['refused']}")
        if answer["rows"]:
            return json.loads(answer["rows"][0]["tries"])
        time.sleep(0.2)


rightful("mutate_workflow_db", sql="INSERT INTO present VALUES (?, 'hammer', ?)", params=[RUN, TOKEN])
tries = orders(RUN)
rng = random.Random(RUN)
moments = dict(zip(rng.sample(range(CALLS), len(tries)), tries, strict=True))
for moment in range(CALLS):
    write() if rng.random() < 0.6 else read()
    if moment in moments:
        kind, token, session = moments[moment]
        told["tries"][kind] = try_as(token or TOKEN, session)
rightful("mutate_workflow_db", sql="INSERT INTO present VALUES (?, 'done', ?)", params=[RUN, TOKEN])
orders(f"{RUN} leaves")  # no session ends while another run still tries it
print("TOLD " + json.dumps(told))
