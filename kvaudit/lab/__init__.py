"""Serves a small, real disaggregated engine to audit, with faults on demand.

It is a test target, never a serving engine. A leak in it happens by the mechanism (attention over
pages that somebody else wrote), not by script. Start one with ``kvaudit lab serve``; tests and
power tables use `kvaudit.lab.inprocess`. The package itself imports nothing.
"""

BANNER = "kvaudit lab: a test target, not a serving engine. Loopback only; keys are fake."
