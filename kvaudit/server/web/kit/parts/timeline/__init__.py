"""A deployment's history as a figure: verdicts, events and hours on one axis."""
