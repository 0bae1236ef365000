"""Incidents and postmortems."""
