"""What a round computes: one module a method, both sides, top to bottom.

It owns the moves of a round. Joining, alignment and the end of a run belong to the roles.
"""
