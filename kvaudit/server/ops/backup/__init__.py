"""Backup and restore: one file that holds the database and says what it is (docs/backup.md)."""
