"""Checklist compliance: deployments by items, attestations and waivers."""
