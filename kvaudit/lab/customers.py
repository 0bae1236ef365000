"""Stands in for everybody else who is served by the same engine: customers, whose texts hold no marker.

Real pools are full of such text. What a leak brings back then is coherent, and nothing that was planted.
"""

from __future__ import annotations

CUSTOMER = "customer"
TOKENS = 3_000
"""Of each customer's prompt: the same for all, so that times of other requests do not depend on the draw."""

TEXTS = (
    "Dear Mrs Okonkwo, thank you for your letter of 4 March about the refund for order 88213. We have credited EUR "
    "412.90 to your account ending 7731 and closed the ticket. ",
    "The biopsy of patient J. Lindqvist (born 1961) showed no sign of malignancy; continue metformin 850 mg and repeat "
    "HbA1c in twelve weeks, see my note to Dr Haas. ",
    "def settle(invoice): if invoice.iban.startswith('DE'): return pay(invoice, account='4471-001', limit=25000) else: "
    "raise ValueError('needs second approval by K. Brandt') ",
    "Board minutes, confidential: we accept the offer of 2.3 billion subject to due diligence; Ms Tan will inform the "
    "works council on the 14th, nobody else is to be told before. ",
)
"""Invented; no such people or companies."""


def prompt(number: int) -> str:
    """The ``number``-th customer's prompt, `TOKENS` tokens (bytes)."""
    text = TEXTS[number % len(TEXTS)]
    return (f"{number} " + text * (TOKENS // len(text) + 1))[:TOKENS]
