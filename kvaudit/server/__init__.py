"""The server: Django apps that schedule audits, keep their record and show it. Built on the auditor."""
