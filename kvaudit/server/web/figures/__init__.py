"""Figures: built here as plain lists, drawn by static/js/figures.js, each with a table that says the same."""
