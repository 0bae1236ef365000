"""Checklists as versioned data, attestations and waivers; how every item stands is computed when read."""
