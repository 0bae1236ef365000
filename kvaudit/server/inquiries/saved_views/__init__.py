"""Saved views of pages that have filters."""
