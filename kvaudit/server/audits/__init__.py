"""Plans, runs, results, evidence and state: the schedule and what came of it."""
