"""How a run is carried out: claimed, probed, recorded, recovered."""
