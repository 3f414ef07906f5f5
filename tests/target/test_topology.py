"""Instances have the links their shapes promise."""

import dataclasses
from collections import Counter

import pytest

from ranvier.errors import RanvierError
from ranvier.target import get
from ranvier.target.topology import INSTANCES, Shape, instance


@pytest.mark.parametrize("name", INSTANCES)
def test_links_are_unique_and_connect_every_chip(name):
    machine = instance(name)
    links = [tuple(sorted(link[:2])) for link in machine.links()]
    assert len(set(links)) == len(links)
    assert all(0 <= a < b < machine.chips for a, b in links)
    if machine.shape is Shape.TORUS:
        reached, frontier = {0}, [0]
        while frontier:
            here = frontier.pop()
            for a, b in links:
                if here in (a, b):
                    there = a + b - here
                    if there not in reached:
                        reached.add(there)
                        frontier.append(there)
        assert len(reached) == machine.chips


@pytest.mark.parametrize(("name", "chips", "per_chip", "bytes_per_ns"), [
    ("inf2.48xlarge", 12, 2, 206), ("trn1.32xlarge", 16, 4, 384), ("trn1n.32xlarge", 16, 4, 768),
    ("trn2.48xlarge", 16, 4, 1024), ("trn2-ultraserver", 64, 6, 1280),
])
def test_bandwidth_of_a_chip_is_what_is_stated(name, chips, per_chip, bytes_per_ns):
    machine = instance(name)
    degree, bandwidth = Counter(), Counter()
    for a, b, fact in machine.links():
        for chip in (a, b):
            degree[chip] += 1
            bandwidth[chip] += fact.value
    assert machine.chips == chips
    assert set(degree.values()) == {per_chip}
    assert {round(value) for value in bandwidth.values()} == {bytes_per_ns}


def test_links_of_chip_and_instance_agree():
    for name in ("inf2.48xlarge", "trn1.32xlarge", "trn2.48xlarge"):
        machine = instance(name)
        chip = get(machine.target).chip
        assert all(fact.value == chip.link_bytes_per_ns.value for _, _, fact in machine.links())


def test_a_ring_of_two_has_one_link():
    pair = dataclasses.replace(instance("trn1.32xlarge"), axes=(2, 4))
    links = [tuple(sorted(link[:2])) for link in pair.links()]
    assert len(links) == len(set(links)) == 4 + 8


def test_unknown_instance():
    with pytest.raises(RanvierError, match=r"trn2\.48xlarge") as caught:
        instance("trn9")
    assert caught.value.code == "E0801"
