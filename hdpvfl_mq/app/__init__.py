"""The user interface: command line, local cluster, estimators, reports.

It owns options, tables on a screen, exit codes and pages. It decides nothing that a party or the
broker decides, and no other package imports it.
"""
