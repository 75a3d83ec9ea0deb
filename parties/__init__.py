"""The roles of the parties: pure state machines.

It owns what a party sends and when: joining, alignment, rounds, the end. Files and settings belong
to parties/process, plans and bounds to hdpvfl_mq/methods.
"""
