"""The journal: chain, store, replay, audit."""
