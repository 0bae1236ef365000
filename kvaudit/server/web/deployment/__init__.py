"""One deployment: how it stands, and why."""
