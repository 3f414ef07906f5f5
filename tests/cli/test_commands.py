"""The command line: what it prints, writes and exits with."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from test_check_pass import drop_relu

from ranvier.cli.main import COMMANDS, main
from ranvier.compiler import pipeline
from ranvier.errors import CODES

EXAMPLES = Path(__file__).parents[2] / "examples"
MODEL = '''
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layer = nn.Linear(32, 16)

        def forward(self, x, shift):
            return torch.relu(self.layer(x)) + shift

    def example():
        torch.manual_seed(1)
        return Model(), (torch.randn(8, 32),), {"shift": torch.ones(16)}

    def unsupported():
        class Odd(nn.Module):
            def forward(self, x):
                return torch.linalg.svd(x)[1]
        return Odd(), (torch.randn(4, 4),)

    def failing():
        raise ValueError("the weights are gone")

    nothing = 3
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("cli")
    (made / "model.py").write_text(textwrap.dedent(MODEL))
    (made / "broken.py").write_text("def model(:")
    np.save(made / "one.npy", np.zeros(3))
    return made


@pytest.fixture(scope="module")
def compiled(folder):
    path = folder / "m.rvx"
    assert status(["compile", f"{folder / 'model.py'}:example", "--dtype", "float32", "-o", str(path)]) == 0
    return path


def status(arguments):
    with pytest.raises(SystemExit) as exited:
        main([str(a) for a in arguments])
    return exited.value.code or 0


def output(capsys, *arguments, code=0):
    capsys.readouterr()
    assert status(arguments) == code
    return capsys.readouterr()


def test_help_lists_every_command(capsys):
    text = output(capsys, "--help").out
    for name, line in COMMANDS.items():
        assert f"  {name:9} {line}" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(capsys, name):
    assert "Usage: ranvier" in output(capsys, name, "--help").out


def test_version(capsys):
    import ranvier

    assert output(capsys, "--version").out == f"ranvier {ranvier.__version__}\n"


@pytest.mark.parametrize("arguments", [["nonsense"], ["compile"], ["explain", "E0101", "more"], ["run", "x", "--what"]])
def test_wrong_usage_exits_with_2(arguments):
    assert status(arguments) == 2


def test_compile_says_where_the_program_came_from(capsys, folder, compiled):
    spec = f"{folder / 'model.py'}:example"
    again = json.loads(output(capsys, "compile", spec, "--dtype", "float32", "-o", folder / "n.rvx", "--json").out)
    assert again["from_cache"] is True
    assert (folder / "n.rvx").read_bytes() == compiled.read_bytes()
    fresh = json.loads(output(capsys, "compile", spec, "--dtype", "float32", "-o", folder / "n.rvx", "--no-cache",
                              "--dump", folder / "dump", "--json").out)
    assert fresh["from_cache"] is False
    assert fresh["instructions"] == again["instructions"] > 3
    assert len(list((folder / "dump").iterdir())) == len(fresh["stages"]) > 5


def test_run_gives_what_the_model_gives(capsys, folder, compiled):
    import importlib.util

    spec = importlib.util.spec_from_file_location("model", folder / "model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model, (x,), kwargs = module.example()
    np.savez(folder / "in.npz", x=x.numpy(), shift=kwargs["shift"].numpy())
    printed = output(capsys, "run", compiled, "--input", folder / "in.npz", "--output", folder / "out.npz").out
    result = np.load(folder / "out.npz")["output0"]
    np.testing.assert_allclose(result, model(x, **kwargs).detach().numpy(), rtol=1e-5, atol=1e-5)
    assert f"output0: float32[8, 16] = [{result.flat[0]:.5g}," in printed


def test_run_refuses_other_arrays(capsys, folder, compiled):
    np.savez(folder / "wrong.npz", y=np.zeros(3))
    assert "E0603" in output(capsys, "run", compiled, "--input", folder / "wrong.npz", code=1).err
    (folder / "broken.npz").write_text("no archive")
    assert "E0804" in output(capsys, "run", compiled, "--input", folder / "broken.npz", code=1).err


def test_profile_of_a_model_and_of_a_kernel(capsys, folder, compiled):
    page, trace = folder / "p.html", folder / "p.json"
    text = output(capsys, "profile", compiled, "--html", page, "--perfetto", trace).out
    assert "critical path" in text
    assert "<html" in page.read_text()
    assert json.loads(trace.read_text())["traceEvents"]
    of_kernel = json.loads(output(capsys, "profile", f"{EXAMPLES / 'softmax_kernel.py'}:example", "--json").out)
    assert of_kernel["latency_ns"] > of_kernel["bound_ns"] > 0
    slower = json.loads(output(capsys, "profile", f"{EXAMPLES / 'softmax_kernel.py'}:example", "--target", "trn1",
                               "--json").out)
    assert slower["target"] == "trn1"
    of_model = json.loads(output(capsys, "profile", f"{folder / 'model.py'}:example", "--json").out)
    assert of_model["name"] == "Model" and of_model["latency_ns"] > of_model["bound_ns"] > 0
    assert "E0802" in output(capsys, "profile", compiled, "--target", "trn1", code=1).err


def test_check_of_a_model_and_of_a_kernel(capsys, folder):
    found = json.loads(output(capsys, "check", f"{folder / 'model.py'}:example", "--dtype", "float32", "--json").out)
    assert found["passed"] is True
    assert found["stages"][0]["name"] == "import"
    assert "ok" in output(capsys, "check", f"{EXAMPLES / 'softmax_kernel.py'}:example").out


def test_check_exits_with_1_when_a_stage_differs(capsys, folder, monkeypatch):
    real = pipeline.graph_passes

    monkeypatch.setattr(pipeline, "graph_passes", lambda dtype: [*real(dtype), ("planted", drop_relu)])
    result = output(capsys, "check", f"{folder / 'model.py'}:example", code=1)
    assert "E0606 after planted" in result.err
    assert "torch.relu(self.layer(x))" in result.err
    assert "differs" in result.out


def test_inspect_and_disasm(capsys, compiled):
    found = json.loads(output(capsys, "inspect", compiled, "--json").out)
    assert found["manifest"]["model"] == "Model"
    assert found["file_bytes"] == compiled.stat().st_size
    text = output(capsys, "inspect", compiled).out
    assert "nc_matmul" in text
    assert "layer" in text
    code = output(capsys, "disasm", compiled, "--engine", "tensor").out
    assert "stream tensor" in code
    assert "stream vector" not in code
    assert "nc_matmul" in code
    assert "E0802" in output(capsys, "disasm", compiled, "--engine", "warp", code=1).err


def test_ops_lists_what_is_imported(capsys):
    rows = json.loads(output(capsys, "ops", "torch", "--json").out)
    assert {"aten.linear.default", "aten.softmax.int"} <= {row["name"] for row in rows}
    assert "E0802" in output(capsys, "ops", "caffe", code=1).err


def test_explain_every_code(capsys):
    listed = output(capsys, "explain").out
    for code, spec in CODES.items():
        assert f"{code}  {spec.title}" in listed
    page = output(capsys, "explain", "e0304").out
    assert CODES["E0304"].page in page
    assert "Whose fault" in page
    assert "E0802" in output(capsys, "explain", "E9999", code=1).err


def test_doctor_finds_what_is_broken(capsys, monkeypatch, tmp_path):
    found = json.loads(output(capsys, "doctor", "--json").out)
    assert not [f for f in found if f["state"] == "broken"]
    assert {"a matmul on trn1", "a matmul on trn3"} <= {f["what"] for f in found}
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RANVIER_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setenv("RANVIER_DTYPE", "int3")
    text = output(capsys, "doctor", code=1).out
    assert "broken   compile cache" in text
    assert "broken   setting dtype" in text


@pytest.mark.parametrize("arguments, code", [
    (["compile", "{}/missing.py:x"], "E0804"), (["compile", "{}/model.py:absent"], "E0804"),
    (["compile", "{}/model.py:nothing"], "E0804"), (["compile", "no colon"], "E0804"),
    (["compile", "{}/model.py:unsupported"], "E0602"), (["compile", "{}/model.py:example", "--target", "x"], "E0801"),
    (["profile", "{}/none.rvx"], "E0804"), (["inspect", "{}/model.py"], "E0701"),
    (["profile", "{}/model.py:nothing"], "E0804"), (["profile", "{}"], "E0804"),
    (["compile", "{}/model.py:example", "-o", "{}"], "E0804"), (["compile", "{}/broken.py:model"], "E0804"),
    (["compile", "{}/model.py:failing"], "E0804"), (["run", "{}/m.rvx", "--input", "{}/one.npy"], "E0804"),
    (["run", "{}/m.rvx", "--input", "{}/none.npz"], "E0804"), (["profile", "{}/m.rvx", "--html", "{}"], "E0804"),
])
def test_failures_are_errors_without_traceback(capsys, folder, compiled, arguments, code):
    err = output(capsys, *[a.format(folder) for a in arguments], code=1).err
    assert f"error {code}" in err
    assert f"ranvier explain {code}" in err
    assert "Traceback" not in err


def test_errors_of_the_users_file_name_its_line(capsys, folder):
    err = output(capsys, "check", folder / "model.py:failing", code=1).err
    assert "model.py raised ValueError: the weights are gone" in err
    line = 1 + (folder / "model.py").read_text().splitlines().index('    raise ValueError("the weights are gone")')
    assert f"model.py, line {line}, in failing" in err
    assert "broken.py, line 1" in output(capsys, "compile", folder / "broken.py:model", code=1).err


def test_without_a_command_there_is_help(capsys):
    assert "Usage: ranvier" in output(capsys, code=2).out


def test_module_is_the_command_line():
    run = subprocess.run([sys.executable, "-m", "ranvier", "--version"], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("ranvier ")


def test_traceback_on_request(monkeypatch):
    monkeypatch.setenv("RANVIER_TRACEBACK", "1")
    with pytest.raises(Exception, match="E9999"):
        main(["explain", "E9999"])


def test_demo_and_ops_without_torch():
    code = "import sys; sys.modules['torch'] = None; from ranvier.cli.main import main; main(sys.argv[1:])"
    for arguments in (["demo"], ["ops"], ["compile", "minilm"]):
        run = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
        assert run.returncode == 1
        assert "E0803" in run.stderr
        assert "pip install" in run.stderr


def test_output_to_a_closed_pipe_is_no_error():
    run = subprocess.run(f"{sys.executable} -m ranvier.cli explain | head -1", shell=True, capture_output=True,
                         text=True, check=False)
    assert run.stderr == ""
