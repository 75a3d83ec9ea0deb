"""A federation on one machine: data split between parties, processes, evaluation, summary.

It owns what only a holder of all the data can do. The processes are those of production.
"""
