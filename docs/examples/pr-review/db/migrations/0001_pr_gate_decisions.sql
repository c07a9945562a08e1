-- One row a run: what the gate decided about which pull request, and why.
CREATE TABLE pr_gate_decisions (
    run_id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    repo TEXT NOT NULL,
    pull_number INTEGER NOT NULL,
    head_sha TEXT NOT NULL,
    decision TEXT NOT NULL CHECK (decision IN ('review', 'skip')),
    reason TEXT NOT NULL,
    decided_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
);

CREATE INDEX pr_gate_decisions_by_pull ON pr_gate_decisions (owner, repo, pull_number);
