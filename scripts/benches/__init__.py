"""The parts of `scripts/bench.py`: what is compared with what, measured side by side."""
