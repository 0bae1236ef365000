"""Computes the statistics of the checks: bounds for rare events, prefill-time fit, KS test, CUSUM, Fisher.

numpy and scipy are imported here only, inside the functions that need them; the rest of the ground
floor starts without either.
"""
