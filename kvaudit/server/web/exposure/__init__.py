"""Was anybody exposed? The exposure statement of a deployment."""
