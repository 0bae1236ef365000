"""Saved filters of pages."""
