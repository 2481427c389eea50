"""Hostile launch lines, scripts and manifests: bounded, never run, refused as what they are."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.launch.forms import read_launches
from kvcalc.launch.values import LaunchError

LAUGHS = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" if n else "a0: &a0 [x, y]" for n in range(12))


@pytest.mark.parametrize(
    "text",
    [
        f"{LAUGHS}\nservices: {{vllm: {{image: vllm/vllm-openai, command: *a11}}}}\n",
        "services: " + "[" * 5000,
        "services: " + "{a: " * 3000,
        "a: b\n" * 300_000,
        "vllm serve m " + "x " * 60_000,
        "A=xxxxxxxxxx\n" + "A=$A$A$A$A$A$A$A$A\n" * 40 + "vllm serve $A\n",
        "vllm serve m\0",
    ],
    ids=["aliases", "deep list", "deep mapping", "long", "words", "doubling", "nul"],
)
def test_more_than_any_launch_holds_is_refused(text: str) -> None:
    with pytest.raises(LaunchError):
        read_launches(text, "compose.yaml" if ":" in text[:20] else "run.sh")


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve $(touch {file}) -tp 2",
        "vllm serve `touch {file}` -tp 2",
        'vllm serve m -tp "$(touch {file})"',
        "touch {file}; vllm serve m",
        "import vllm\nopen('{file}', 'w')\nllm = vllm.LLM(model=open('{file}', 'w').name)\n",
        "vllm serve m -tp $((__import__('os').system('touch {file}')))",
    ],
)
def test_nothing_is_run(text: str, tmp_path: Path) -> None:
    file = tmp_path / "made"
    read_launches(text.replace("{file}", str(file)))
    assert not file.exists()


def test_the_environment_stays_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TP", "4")
    (launch,) = read_launches("vllm serve m -tp $SECRET_TP")
    assert (launch.settings, launch.asks) == ({"tensor-parallel-size": "$SECRET_TP"}, ("SECRET_TP",))
    (launch,) = read_launches("vllm serve m -tp $SECRET_TP", env={"SECRET_TP": "4"})
    assert (launch.settings, launch.asks) == ({"tensor-parallel-size": 4}, ())


SNIPPETS = st.sampled_from(
    [
        *(
            "vllm serve m ",
            "llama-server ",
            "docker run ",
            "bash -c ",
            "--tp ",
            "-c ",
            "'",
            '"',
            "\\",
            "\n",
            "$",
            "${",
            "}",
            "$((",
            "))",
        ),
        *(
            "(",
            ")",
            "<<EOF",
            "EOF",
            "|",
            "&",
            ";",
            "#",
            "`",
            "services:\n",
            "  a:\n",
            "    image: vllm/vllm\n",
            "- ",
            "[Service]\n",
            "=",
            "{{",
            "}}",
        ),
        *(
            "if true; then ",
            "fi\n",
            "case x in ",
            "esac\n",
            "A=(",
            "%X%",
            "^\n",
            "FROM x\n",
            "PARAMETER num_ctx 1\n",
            "import vllm\n",
            "{",
            "[",
            ":",
        ),
    ]
)


@given(
    st.lists(SNIPPETS | st.text(max_size=5), max_size=25).map("".join),
    st.sampled_from(["", "a.yaml", "x.py", "x.service", "Modelfile"]),
)
def test_any_text_is_read_or_refused(text: str, name: str) -> None:
    with suppress(LaunchError):
        assert all(launch.engine for launch in read_launches(text, name))


@pytest.mark.parametrize("digits", ["²", "٣", "9" * 5000, "-1", "1e3", "0x1"])
def test_digits_that_are_no_number(digits: str) -> None:
    texts = {
        f"docker run --gpus {digits} vllm/vllm-openai --model m": "run.sh",
        f"resources: {{accelerators: 'H100:{digits}'}}\nrun: vllm serve m\n": "task.yaml",
        "services:\n  a:\n    image: vllm/vllm-openai\n    deploy: {resources: {reservations: {devices: [{count: "
        f"'{digits}'}}]}}}}}}": "c.yaml",
        f"OLLAMA_NUM_PARALLEL={digits} ollama serve": "run.sh",
        f"vllm serve m -tp {digits} --max-model-len {digits}": "run.sh",
    }
    for text, name in texts.items():
        with suppress(LaunchError):
            read_launches(text, name)
