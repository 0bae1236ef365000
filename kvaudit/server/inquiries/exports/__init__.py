"""Exports that can be watched and cancelled."""
