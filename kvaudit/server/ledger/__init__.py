"""The append-only record: who did what, when, to what, with the digest of it."""
