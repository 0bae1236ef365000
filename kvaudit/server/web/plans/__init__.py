"""Plans: when what is audited, and the pause of probes."""
