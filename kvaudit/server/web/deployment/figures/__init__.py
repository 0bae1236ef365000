"""Figures of a deployment: capacity, prefill times, timeline; each with a table of the same numbers."""
