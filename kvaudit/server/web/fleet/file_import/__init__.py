"""A fleet file: its preview, its mistakes, and the import."""
