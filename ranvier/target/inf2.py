"""Inferentia2: the core of Trainium1, on a chip with fewer links."""

from __future__ import annotations

import dataclasses

from ranvier.target import sources as src
from ranvier.target import trn1
from ranvier.target.fact import documented

TARGET = dataclasses.replace(
    trn1.TARGET,
    name="inf2",
    title="Inferentia2",
    chip=dataclasses.replace(
        trn1.CHIP,
        links=documented(2, "1", src.CHIP_PAGES),
        link_bytes_per_ns=documented(103.1, "bytes/ns", src.CHIP_PAGES + ": 192 GiB/s over two links"),
    ),
)
