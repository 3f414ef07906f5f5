"""For all tests: the user's own cache and settings stay out of them."""

import os

# Many small matrix products: threads only get in each other's way.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest


@pytest.fixture(scope="session", autouse=True)
def private_settings(tmp_path_factory):
    """A compile cache of this session, and no settings from the environment."""
    before = {name: value for name, value in os.environ.items() if name.startswith("RANVIER_")}
    for name in before:
        del os.environ[name]
    os.environ["RANVIER_CACHE_DIR"] = str(tmp_path_factory.mktemp("compile-cache"))
    yield
    del os.environ["RANVIER_CACHE_DIR"]
    os.environ.update(before)
