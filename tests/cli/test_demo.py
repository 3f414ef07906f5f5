"""`ranvier demo`: the numbers that it prints, within what they may be."""

import json

import pytest

from ranvier.cli.main import main


@pytest.mark.slow
def test_demo_of_a_real_model(capsys, tmp_path):
    with pytest.raises(SystemExit) as exited:
        main(["demo", "--json", "--page", str(tmp_path / "page.html")])
    assert not exited.value.code
    found = json.loads(capsys.readouterr().out)
    assert set(found) >= {"max_abs_diff", "compile_s", "warm_compile_s", "latency_us", "bound_us", "run_s"}
    assert 0 < found["max_abs_diff"]["float32"] < 5e-6
    assert 1e-5 < found["max_abs_diff"]["bfloat16"] < 1e-2
    assert found["bound_us"] < found["latency_us"] < 4 * found["bound_us"]
    assert found["warm_compile_s"] < found["compile_s"]
    assert (tmp_path / "page.html").stat().st_size > 10_000
