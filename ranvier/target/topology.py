"""Instances: how many chips there are and how they are linked. Data for collectives and for multi-chip simulation.

Bandwidths are totals of both directions; halve them for one direction.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType

from ranvier.errors import error
from ranvier.target import sources as src
from ranvier.target.fact import Fact, documented, estimated


class Shape(enum.Enum):
    """How chips are linked."""

    SINGLE = "one chip"
    TORUS = "torus: a ring along each axis"
    SWITCHED = "every chip reaches every other through switches"


@dataclass(frozen=True, slots=True)
class Instance:
    """A machine, or several machines that share a fabric.

    `axes` are the sizes of the torus (their product is the number of chips); chips count in row-major order of their
    coordinates. `axis_bytes_per_ns` is the bandwidth of one link, per axis; a switched instance has one entry, the
    bandwidth of a chip.
    """

    name: str
    target: str
    shape: Shape
    axes: tuple[int, ...]
    axis_bytes_per_ns: tuple[Fact, ...]
    network_bytes_per_ns: Fact  # to other instances, whole instance, per direction
    hop_latency_ns: Fact  # between chips of the instance
    network_latency_ns: Fact  # between instances

    @property
    def chips(self) -> int:
        return math.prod(self.axes)

    def links(self) -> Iterator[tuple[int, int, Fact]]:
        """Each link once: two chips and the bandwidth. A switched instance has none of its own (empty)."""
        if self.shape is not Shape.TORUS:
            return
        strides = [math.prod(self.axes[axis + 1:]) for axis in range(len(self.axes))]
        for chip, position in enumerate(itertools.product(*(range(size) for size in self.axes))):
            for axis, size in enumerate(self.axes):
                if size == 2 and position[axis] == 1:
                    continue  # a ring of two has one link
                if size > 1:
                    there = (position[axis] + 1) % size
                    yield chip, chip + (there - position[axis]) * strides[axis], self.axis_bytes_per_ns[axis]


_HOP = estimated(1500.0, "ns", src.COLLECTIVES + ": 1 to 2 us for a hop of a ring")
_NETWORK = documented(15_000.0, "ns", src.COLLECTIVES)


def _instance(
    name: str,
    target: str,
    axes: tuple[int, ...],
    links: tuple[float, ...],
    network_gbps: float,
    shape: Shape = Shape.TORUS,
) -> Instance:
    if network_gbps:
        network = documented(network_gbps / 8, "bytes/ns", src.CHIP_PAGES)
    else:
        network = estimated(0.0, "bytes/ns", "assumption: used alone")
    facts = tuple(documented(link, "bytes/ns", src.CHIP_PAGES) for link in links)
    return Instance(name, target, shape, axes, facts, network, _HOP, _NETWORK)


_ALL = (
    _instance("inf2.xlarge", "inf2", (1,), (), 0, Shape.SINGLE),
    _instance("inf2.24xlarge", "inf2", (6,), (103.1,), 0),
    _instance("inf2.48xlarge", "inf2", (12,), (103.1,), 0),
    _instance("trn1.2xlarge", "trn1", (1,), (), 0, Shape.SINGLE),
    _instance("trn1.32xlarge", "trn1", (4, 4), (96.0, 96.0), 800),
    _instance("trn1n.32xlarge", "trn1", (4, 4), (192.0, 192.0), 1600),
    _instance("trn2.48xlarge", "trn2", (4, 4), (256.0, 256.0), 3200),
    _instance("trn2-ultraserver", "trn2", (4, 4, 4), (128.0, 256.0, 256.0), 3200),
    _instance("trn3-ultraserver-gen1", "trn3", (64,), (2560.0,), 12800, Shape.SWITCHED),
    _instance("trn3-ultraserver-gen2", "trn3", (144,), (2560.0,), 28800, Shape.SWITCHED),
)
INSTANCES = MappingProxyType({instance.name: instance for instance in _ALL})


def instance(name: str) -> Instance:
    """The instance called `name`. Raises E0801 for an unknown name."""
    if name not in INSTANCES:
        raise error("E0801", f"no instance is called {name!r}; known are {', '.join(INSTANCES)}")
    return INSTANCES[name]
