"""What pages show, as plain rows: built from querysets, handed to templates."""
