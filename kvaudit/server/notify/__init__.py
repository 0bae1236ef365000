"""Telling people: channels and a transactional outbox."""
