"""Channels of messages."""
