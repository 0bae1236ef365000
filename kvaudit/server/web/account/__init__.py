"""Login, password, sessions and time zone of whoever looks."""
