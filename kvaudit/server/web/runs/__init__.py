"""Runs: results with their evidence, and audits on demand."""
