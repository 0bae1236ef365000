"""The session API of a deployment, and its approval."""
