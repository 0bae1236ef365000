"""The library of published incidents."""
