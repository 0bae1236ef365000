"""What every page may use: the page decorator, forms, lists, times, badges, figures, untrusted text."""
