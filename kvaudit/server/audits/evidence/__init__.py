"""Evidence: stored by content, sealed, exported, proven and expired."""
