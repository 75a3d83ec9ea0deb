"""A party's mathematics over fixed blocks of rows, by one process or many.

It owns where blocks are computed. It does not know what they mean, and it folds nothing: callers
fold the results in block order, so the bits are the same whatever the engine.
"""
