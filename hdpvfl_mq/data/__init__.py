"""A party's own rows: from files of common formats to checked numbers.

It owns readers, columns, preprocessing constants and fingerprints. It knows no loss, message or
peer; nothing here is sent.
"""
