"""The roles of the parties: pure state machines, and how settings become a node."""
