"""What active checks send and how they recognise it: markers, frames, nonces, needles, exact lengths.

Pure: nothing here talks to an engine. Measured reasons for each shape are in docs/checks.md.
"""
