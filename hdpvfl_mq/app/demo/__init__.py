"""A federation on one machine: data dealt to parties, processes, evaluation, summary.

It owns what only somebody who holds all the data can do. The processes are those of production.
"""
