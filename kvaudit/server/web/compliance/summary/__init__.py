"""The summary of a week, for reading and for sending."""
