"""The pumps that move frames: sockets, runner, simulation."""
