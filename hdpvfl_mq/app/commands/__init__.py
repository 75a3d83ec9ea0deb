"""One module for each command of `hdpvfl`.

It owns what a command prints and its exit code. What it shows is computed elsewhere.
"""
