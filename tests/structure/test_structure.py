"""Rules about the code itself: sizes, layers, names of chips, frameworks, start-up, and a test for each error."""

import ast
import itertools
import re
import subprocess
import sys
import tokenize
import tomllib
from pathlib import Path

import pytest

from ranvier import target
from ranvier.errors import CODES

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "ranvier"
SOURCES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
FRAMEWORKS = ("torch", "jax", "tensorflow", "onnx", "transformers", "tokenizers", "safetensors")
FILE_LINES, FUNCTION_LINES, PACKAGE_LINES = 800, 60, 25_000
CORE_IMPORT_SECONDS = 0.5


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_sources_are_found():
    assert len(SOURCES) > 80
    assert len(TESTS) > 20


@pytest.mark.parametrize("path", [*SOURCES, *TESTS], ids=relative)
def test_files_are_of_readable_size(path):
    assert len(path.read_text().splitlines()) <= FILE_LINES


def test_functions_are_of_readable_size():
    long = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
                lines = node.end_lineno - node.lineno + 1
                if lines > FUNCTION_LINES:
                    long.append(f"{relative(path)}:{node.lineno} {node.name} has {lines} lines")
    assert not long, "\n".join(long)


def code_lines(path: Path) -> int:
    """Lines with code: neither blank, nor comment, nor documentation."""
    lines: set[int] = set()
    with tokenize.open(path) as file:
        tokens = [t for t in tokenize.generate_tokens(file.readline) if t.type not in SILENT]
    for before, token in itertools.pairwise([None, *tokens]):
        documentation = token.type == tokenize.STRING and (before is None or before.type in STATEMENT_START)
        if not documentation:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines)


SILENT = (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER)
STATEMENT_START = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def test_package_is_small():
    kernels = PACKAGE / "kernels"
    assert sum(code_lines(path) for path in SOURCES if kernels not in path.parents) <= PACKAGE_LINES


def chip_names() -> re.Pattern[str]:
    words = [*target.names(), *(f"trainium{i}" for i in (1, 2, 3)), "inferentia2", "neuroncore-v[0-9]"]
    return re.compile(rf"\b({'|'.join(words)})\b", re.IGNORECASE)


def code_strings(path: Path) -> list[tuple[int, str]]:
    """Strings of the code that are not documentation, with their lines."""
    tree = ast.parse(path.read_text())
    documentation = {
        id(node.body[0].value) for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body
        and isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)
    }
    return [(node.lineno, node.value) for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation]


def test_no_code_depends_on_the_name_of_a_chip():
    """Differences between generations are facts and features of targets. Settings name the default target."""
    # Help texts and messages may give an example; the default target and the demonstration's are settings.
    allowed = {PACKAGE / "config.py", PACKAGE / "cli" / "targets.py", PACKAGE / "cli" / "demo.py"}
    found = []
    for path in SOURCES:
        if PACKAGE / "target" in path.parents or path in allowed:
            continue
        for line, text in code_strings(path):
            if chip_names().fullmatch(text.strip()):
                found.append(f"{relative(path)}:{line}: {text!r}")
    assert not found, "\n".join(found)


def test_frameworks_are_imported_by_front_ends_only():
    found = []
    for path in SOURCES:
        if PACKAGE / "frontends" in path.parents:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else (
                [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else [])
            used = {n.partition(".")[0] for n in names} & set(FRAMEWORKS)
            if used and not in_type_checking_or_cli(path):
                found.append(f"{relative(path)}:{node.lineno} imports {', '.join(used)}")
    assert not found, "\n".join(found)


def in_type_checking_or_cli(path: Path) -> bool:
    """Commands that show a framework's own results beside ours import it; so does the language, for its arrays."""
    return path in (PACKAGE / "cli" / "demo.py", PACKAGE / "nki" / "arrays.py")


def test_imports_point_downward():
    run = subprocess.run([Path(sys.executable).parent / "lint-imports", "--no-cache"], cwd=ROOT, capture_output=True,
                         text=True)
    assert run.returncode == 0, run.stdout


def best_of(code: str, times: int = 3) -> float:
    """Seconds of processor time that `code` takes in a fresh interpreter, the least of a few tries."""
    measure = f"import time; start = time.process_time(); {code}; print(time.process_time() - start)"
    runs = [subprocess.run([sys.executable, "-c", measure], capture_output=True, text=True, check=True, cwd="/")
            for _ in range(times)]
    return min(float(run.stdout) for run in runs)


def test_import_is_quick_and_brings_no_framework():
    assert best_of("import ranvier") < CORE_IMPORT_SECONDS
    names = ("Executable", "Profile", "Target", "benchmark", "compile", "load", "nki", "simulate", "check")
    code = f"import sys, ranvier; [getattr(ranvier, n) for n in {names}]"
    shown = f"{code}; print([m for m in {FRAMEWORKS} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True, cwd="/")
    assert run.stdout.strip() == "[]"


def test_help_is_quick():
    code = "import contextlib, io\n"
    code += "with contextlib.redirect_stdout(io.StringIO()):\n"
    code += "    from ranvier.cli.main import app; app()(['--help'], standalone_mode=False)"
    assert best_of(f"exec({code!r})") < CORE_IMPORT_SECONDS


def test_every_error_is_raised_by_a_test():
    text = "\n".join(path.read_text() for path in TESTS if path != Path(__file__))
    missing = [code for code in CODES if code not in text]
    assert not missing, f"no test mentions {', '.join(missing)}"


def test_every_error_is_raised_by_the_code():
    text = "\n".join(path.read_text() for path in SOURCES if path != PACKAGE / "errors.py")
    missing = [code for code in CODES if f'"{code}"' not in text]
    assert not missing, f"nothing raises {', '.join(missing)}"


def test_errors_say_what_to_do_and_whose_fault_it_is():
    for spec in CODES.values():
        assert re.fullmatch(r"E0[1-9]\d\d", spec.code)
        assert len(spec.page) > 40, spec.code
        assert not spec.title.endswith("."), spec.code


def test_code_names_its_exceptions():
    """No broad except: what is caught is what is expected. A front end may wrap whatever a user's model raises."""
    found = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler):
                caught = "" if node.type is None else ast.unparse(node.type)
                reraises = any(isinstance(n, ast.Raise) for n in ast.walk(node))
                if caught in ("", "Exception", "BaseException") and not reraises:
                    found.append(f"{relative(path)}:{node.lineno}")
    assert not found, "\n".join(found)


def test_no_module_keeps_state():
    """Module-level names that are bound to an empty list, dict or set would be filled later: state of the process."""
    registries = {("errors.py", "CODES"), ("isa/record.py", "REGISTRY")}  # filled while their modules are imported
    found = []
    for path in SOURCES:
        for node in ast.parse(path.read_text()).body:
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            empty = ast.unparse(value) in ("{}", "[]", "set()", "dict()", "list()") if value is not None else False
            if empty and isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                name = ast.unparse(targets[0])
                if (str(path.relative_to(PACKAGE)), name) not in registries:
                    found.append(f"{relative(path)}:{node.lineno} {name}")
    assert not found, "\n".join(found)


def test_private_names_stay_in_their_module():
    found = []
    for path in [*SOURCES, *TESTS]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ranvier"):
                private = [a.name for a in node.names if a.name.startswith("_") and not a.name.endswith("__")]
                found += [f"{relative(path)}:{node.lineno} {name}" for name in private]
    assert not found, "\n".join(found)


def test_nothing_is_left_to_do_or_tied_to_one_machine():
    unwanted = re.compile(r"\b(TODO|FIXME|XXX)\b|(?<![\w.])/(home|root|work|tmp)/")
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *(ROOT / "examples").glob("*.py")]
    found = []
    for path in [*SOURCES, *TESTS, *pages]:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if path != Path(__file__) and unwanted.search(line):
                found.append(f"{relative(path)}:{number}: {line.strip()}")
    assert not found, "\n".join(found)


def test_version_is_said_once():
    import ranvier

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == ranvier.__version__
