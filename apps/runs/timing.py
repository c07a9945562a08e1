"""How long things may take. Each bound has its reason; BEHAVIOUR 10 names the promises they keep."""

from __future__ import annotations

from datetime import timedelta

LEASE_S = 12.0  # a dead worker's attempt is worker_lost within 30 s: this, the foreign wait and a kill fit in
RENEW_S = 2.0
STORE_AGAIN_S = 0.5  # an end that a full disk did not take is written again, for as long as the lease can be kept
FULL_AGAIN_S = 20.0  # a step that could not be started on a full disk: not before somebody can have made room
FENCE_MARGIN_S = 4.0  # a worker that cannot renew has ended its sandboxes this long before the lease runs out
FOREIGN_S = 8.0  # longer than a lease: another host's supervisor has the first right to reap its own
START_DEADLINE_S = 900.0  # from the lease to the first process: a dependency environment may have to be built
HEARTBEAT_S = 2.0
SILENT_S = 15.0  # a supervisor that was not heard of for so long counts as gone
SIGN_S = 1.0  # a supervisor below `up` tells it so often that it goes round
HUNG_S = LEASE_S  # one that gives no sign for so long is replaced: with its start anew, within the 30 s above
LONGEST_ROUND_S = 120.0  # of its duties, when a database holds each of them up; longer is a hang
LEADER_S = 6.0
SWEEP_S = 0.5  # a run that the queue never got is queued within 2 s
LOST_MESSAGE_S = 4.0  # a queued run whose message nobody holds any more
LOST_IN_CROWD_S = 300.0  # the same, while other messages wait
STUCK_CLUSTER_S = 8.0  # a cluster with free workers takes a message at once; one that does not is wedged (Q15)
START_CLUSTER_S = 15.0  # what a cluster may take to start on a busy machine
IDLE_ORPHAN = timedelta(minutes=1)  # a cluster that is to end and holds no run has by then written all it had to
CUT_S = 10.0  # from the end of the drain to the end of the trees and their records
MAX_AGE = timedelta(hours=24)  # an older run is reported once; nothing ends it but its own limits and people
