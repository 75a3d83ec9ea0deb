"""The public plan of a run: manifest and number of rows in, schedule and noise out.

It owns what every party derives alone from public quantities, and the recommended settings. It
sees no data, no secret and no message.
"""
