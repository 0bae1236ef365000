"""Subcommands that need no server: arguments in, one line or one report out, exit code back."""
