"""When audits are due: plans, windows, and the dispatch of due runs."""
