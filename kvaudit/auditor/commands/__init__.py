"""Subcommands of the ground floor: arguments in, one line or one report out, exit code back."""
