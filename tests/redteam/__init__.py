"""Gateways in front of the lab that leak, or are only odd, and the verdict that each has to bring out: `make redteam`."""
