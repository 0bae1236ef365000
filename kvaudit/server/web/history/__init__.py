"""Every result, searched and exported."""
