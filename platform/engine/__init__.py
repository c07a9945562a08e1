"""What a workflow means and how a step runs. Plain Python: no Django, no database."""
