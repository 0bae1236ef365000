"""One module a case (or a few of one kind): a docstring that says what it imitates, and ``CASES``."""
