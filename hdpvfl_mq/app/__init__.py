"""What people touch: command line, local cluster, reports.

It owns options, tables on a screen, exit codes and pages. It decides nothing that a party or the
broker decides, and no other room imports it.
"""
