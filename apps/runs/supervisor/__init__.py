"""`manage.py worker`: heartbeats, reaping, sweeping, and the cluster of processes that advance runs."""
