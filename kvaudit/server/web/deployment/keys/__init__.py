"""Tenants' keys and headers of a deployment."""
