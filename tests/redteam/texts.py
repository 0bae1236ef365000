"""Words for the answers of gateways: what other customers' sessions hold, and what a copier makes of a prompt."""

from __future__ import annotations

import random
from collections.abc import Sequence

CUSTOMERS: Sequence[str] = (
    " Dear Mrs Okonkwo, thank you for your letter of 4 March about the refund for order 88213. We have credited EUR "
    "412.90 to your account ending 7731 and closed the ticket.",
    " The biopsy of patient J. Lindqvist (born 1961) showed no sign of malignancy; continue metformin 850 mg and repeat "
    "HbA1c in twelve weeks, see my note to Dr Haas.",
    " def settle(invoice): if invoice.iban.startswith('DE'): return pay(invoice, account='4471-001', limit=25000) else: "
    "raise ValueError('needs second approval by K. Brandt')",
    " Board minutes, confidential: we accept the offer of 2.3 billion subject to due diligence; Ms Tan will inform the "
    "works council on the 14th, nobody else is to be told before.",
)
"""Coherent text of other customers; no marker of a run is in it."""

_TAILS = (24, 16, 12, 10, 8, 6, 4, 3, 2, 1)


def copied(text: str, characters: int) -> str:
    """``text`` continued as an induction head does: its last characters are found earlier, and what came next is
    copied. The lab's own model does this by attention; one character is one token there."""
    said = text
    while len(said) - len(text) < characters:
        for size in _TAILS:
            at = said.rfind(said[-size:], 0, len(said) - 1)
            if at >= 0 and at + size < len(said):
                said += said[at + size : at + size + max(1, min(32, characters))]
                break
        else:
            said += " "
    return said[len(text) : len(text) + characters]


def of_customers(draw: random.Random, characters: int) -> str:
    """The beginning of some customer's text."""
    return draw.choice(CUSTOMERS)[:characters]


def prompt_of_customers(draw: random.Random, characters: int) -> str:
    """A customer's prompt of that length."""
    return (draw.choice(CUSTOMERS) * (characters // 100 + 1))[:characters]
