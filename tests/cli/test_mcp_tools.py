"""The tools of an agent: the verbs' own JSON; and, where the official package is installed, served and called by its client."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli

from kvcalc.cli.mcp_tools import audit, check, estimate, fit

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"


def test_a_tool_gives_the_verbs_own_document(cli: Cli) -> None:
    ran = cli("estimate", "llama-8b", "--tokens", "32k", "--json")
    assert estimate("llama-8b", tokens="32k") == {**json.loads(ran.out), "exit_code": 0}
    ran = cli("fit", "llama-8b", "--memory", "24GiB", "--weights", "16GB", "--json")
    assert fit("llama-8b", memory="24GiB", weights="16GB") == {**json.loads(ran.out), "exit_code": 0}


def test_a_launch_line_or_a_manifest_as_text() -> None:
    line = "vllm serve Qwen/Qwen3-8B --max-model-len 40960"
    assert check(line, memory="18GiB", weights="16GB")["exit_code"] == 1
    text = (EXAMPLES / "check-compose.yaml").read_text("utf-8")
    (launch,) = check(text, settings_only=True)["commands"]
    assert launch["settings"]["tensor-parallel-size"] == 2


def test_a_log_as_a_path_or_as_text() -> None:
    path = EXAMPLES / "vllm.log"
    found = audit(str(path), "qwen3-32b")
    assert found["exit_code"] in (0, 1)
    assert audit(path.read_text("utf-8"), "qwen3-32b")["loads"] == found["loads"]


@pytest.mark.parametrize("model", ["--help", "--debug", "-h", "no-such-preset", "", "a\nb"])
def test_a_value_is_never_a_flag(model: str) -> None:
    found = estimate(model)
    assert found["exit_code"] != 0
    assert found["error"]["what"]


def test_the_package_is_asked_for_where_it_is_missing(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    ran = cli("mcp")
    assert (ran.code, "kvcalc[mcp]" in ran.err) == (5, True)


def test_the_tools_are_told(cli: Cli) -> None:
    tools = json.loads(cli("mcp", "--tools", "--json").out)["tools"]
    assert [tool["name"] for tool in tools] == ["estimate", "fit", "check", "audit"]
    assert all(tool["description"] for tool in tools)


def test_the_official_client_lists_and_calls_them() -> None:
    anyio, mcp = pytest.importorskip("anyio"), pytest.importorskip("mcp")
    if not hasattr(mcp, "Client"):
        pytest.skip("an older package")
    how = mcp.StdioServerParameters(command=sys.executable, args=["-m", "kvcalc", "mcp"], env={"PYTHONPATH": ":".join(sys.path)})

    async def talk() -> tuple[list[str], Any, Any]:
        async with mcp.Client(how) as client:
            listed = await client.list_tools()
            good = await client.call_tool("estimate", {"model": "llama-8b", "tokens": "32k"})
            bad = await client.call_tool("check", {"what": "ls -l"})
            return [tool.name for tool in listed.tools], good, bad

    names, good, bad = anyio.run(talk)
    assert names == ["estimate", "fit", "check", "audit"]
    # 32 layers x 8 key/value heads x 128 x key and value x 2 bytes x 32k tokens
    assert json.loads(good.content[0].text)["total_bytes"] == 32 * 8 * 128 * 2 * 2 * 32768
    assert json.loads(bad.content[0].text)["exit_code"] == 3
