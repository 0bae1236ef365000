"""Builds the prompts of active checks (markers, frames, nonces, needles, exact lengths) and recognises their
text in answers.

Pure: nothing here talks to an engine. Measured reasons for each shape are in docs/checks.md.
"""
