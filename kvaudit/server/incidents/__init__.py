"""Incidents, their postmortems, the gate a fix has to pass, and the library of published ones."""
