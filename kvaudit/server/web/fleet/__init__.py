"""The fleet: who is at risk, and the import of a fleet file."""
