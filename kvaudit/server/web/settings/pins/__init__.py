"""Version pins."""
