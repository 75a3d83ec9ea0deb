"""The paper's evaluation, run again with production roles; `python -m scripts.reproduce`."""
