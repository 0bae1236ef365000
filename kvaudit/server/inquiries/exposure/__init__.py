"""The exposure statement: what is known of a deployment between two moments."""
