"""The walkthrough and the examples run, as they stand in the documentation."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = [ROOT / "docs" / "walkthrough.py", *sorted((ROOT / "examples").glob("*.py"))]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.name)
def test_script_runs(script, tmp_path):
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path, check=False,
                         env={**os.environ, "RANVIER_CACHE_DIR": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"})
    assert run.returncode == 0, run.stderr
    assert run.stdout


def readme_blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("number", range(2))
def test_example_of_the_readme_runs(number, tmp_path):
    block = readme_blocks("python")[number]
    (tmp_path / "example.py").write_text(block)  # a kernel is read from its file
    run = subprocess.run([sys.executable, "example.py"], capture_output=True, text=True, cwd=tmp_path, check=False,
                         env={**os.environ, "RANVIER_CACHE_DIR": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"})
    assert run.returncode == 0, run.stderr


def test_commands_of_the_readme_exist():
    from ranvier.cli.main import COMMANDS

    text = (ROOT / "README.md").read_text()
    used = set(re.findall(r"ranvier ([a-z]+)\b", "\n".join(readme_blocks("sh"))))
    assert used
    assert used <= set(COMMANDS)
    assert "make demo" in text
    assert "make test" in text


def test_links_of_the_documents_lead_somewhere():
    for page in (ROOT / "README.md", ROOT / "docs" / "design.md"):
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if not link.startswith("http"):
                assert (page.parent / link).exists(), f"{page.name}: {link}"
