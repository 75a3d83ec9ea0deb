"""What crosses a boundary: messages, settings, records. Frozen, strict, no behaviour."""
