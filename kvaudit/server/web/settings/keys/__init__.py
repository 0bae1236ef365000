"""Tenants' keys of the whole fleet."""
