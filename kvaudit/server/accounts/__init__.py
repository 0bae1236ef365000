"""People, teams, roles and API tokens: who may see and do what."""
