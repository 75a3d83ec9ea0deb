"""The audit: what an outsider can say about a run from its journals and ledgers.

It owns the evidence, the numbered checks and their wording. It needs neither data nor secrets, and
it writes nothing.
"""
