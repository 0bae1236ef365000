"""The ledger, and its verification."""
