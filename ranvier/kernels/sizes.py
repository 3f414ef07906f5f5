"""Sizes of tiles that kernels and lowering are written for. They are the same on all targets, which the tests check; a
kernel of your own asks `nl.tile_size`."""

from __future__ import annotations

PARTITIONS = 128
STATIONARY_COLUMNS = 128
MOVING_COLUMNS = 512
BANK_COLUMNS = 512
"""float32 values of a partition in one PSUM bank."""
STATISTICS_COLUMNS = 512
"""Most elements of a partition that one bn_stats takes."""
