"""Programs around the library: measure, reproduce, attack, verify, draw. Nothing imports them."""
