"""Imported request logs: read, classified and kept as counts."""
