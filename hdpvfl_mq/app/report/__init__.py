"""The report of a run: facts from a journal, pictures, one HTML page.

It owns what a report says and how it looks. It judges nothing; the audit does.
"""
