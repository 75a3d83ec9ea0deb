"""HDP-VFL: one generalized linear model from columns that several companies keep apart."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("hdpvfl-mq")
except PackageNotFoundError:  # running from a source tree that is not installed
    __version__ = "0+unknown"
