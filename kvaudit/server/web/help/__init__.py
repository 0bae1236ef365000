"""Help, and the words that pages use."""
