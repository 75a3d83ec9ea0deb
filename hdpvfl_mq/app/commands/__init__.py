"""One module for each command of `hdpvfl`.

It owns what a command prints and its exit code. Other packages compute the figures.
"""
