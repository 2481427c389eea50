"""The page stands alone, and its rows are the engine's."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvcalc.core.model import Request
from kvcalc.engines import find_engine
from kvcalc.engines.estimate import Estimate, estimate
from kvcalc.errors import KvcalcError
from kvcalc.readers.hf_config import model_of
from kvcalc.reports.html import page

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")
HYBRID = {
    "model_type": "gemma3_text",
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "sliding_window": 1024,
    "sliding_window_pattern": 6,
    "max_position_embeddings": 131072,
}
LATENT = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
}


def found(config: dict[str, Any], name: str = "toy", engine: str = "exact", **asked: Any) -> Estimate:
    request = replace(Request(tokens=4096), **asked)
    return estimate(model_of(config, "config.json", name), request, find_engine(engine))


def data_of(text: str) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert match is not None
    data: dict[str, Any] = json.loads(match[1])
    return data


def rows_of(reach: dict[str, Any], tokens: int) -> int:
    """What the page's script computes, written once more."""
    if reach["fixed"] is not None:
        return int(reach["fixed"])
    kept = tokens // reach["ratio"]
    kept = kept if reach["cap"] is None else min(kept, reach["cap"])
    return int(-(-kept // reach["step"]) * reach["step"])


@pytest.mark.parametrize("config", [HYBRID, LATENT], ids=["hybrid", "latent"])
@pytest.mark.parametrize("tokens", [1, 1000, 4096, 131072])
def test_the_rows_give_the_engine_s_total(config: dict[str, Any], tokens: int) -> None:
    (model,) = data_of(page([found(config)]))["models"]
    total = sum(
        row["count"] * slab["row_bytes"] * rows_of(slab["reach"], tokens) for row in model["rows"] for slab in row["slabs"]
    )
    assert 3 * total == found(config, tokens=tokens, batch_size=3).total_bytes


def test_nothing_is_fetched() -> None:
    text = page([found(HYBRID)])
    assert not re.search(r"(?:src|href)\s*=|@import|url\((?!#)", text.replace("url(#kind", ""))
    assert "default-src 'none'" in text
    assert not re.search(r"@[A-Z]+@", text)


def test_a_hostile_name_stays_text() -> None:
    name = "</script><script>alert(1)</script><b>&@DATA@"
    text = page([found(HYBRID, name)])
    assert "<script>alert" not in text
    assert data_of(text)["models"][0]["name"] == name


def test_an_engine_without_rows_gives_its_own_answers() -> None:
    one = found(HYBRID, engine="static")
    data = data_of(page([one], lengths=[5000]))
    (model,) = data["models"]
    assert model["rows"] is None
    assert 5000 in data["lengths"]
    cell = model["grid"]["bytes"][data["batches"].index(4)][data["lengths"].index(5000)]
    assert sum(cell) == found(HYBRID, engine="static", tokens=5000, batch_size=4).total_bytes


def test_without_javascript_the_figures_are_there() -> None:
    one = found(HYBRID)
    assert f"{one.total_bytes:,} bytes" in page([one])


# In a browser: the sliders recompute


def opened(folder: Path, fragment: str) -> str:
    """The page's document after its script has run."""
    command = [str(BROWSER), *QUIET, f"--user-data-dir={folder / 'profile'}", "--dump-dom"]
    address = f"file://{folder}/page.html{fragment}"
    return subprocess.run([*command, address], capture_output=True, text=True, timeout=120, check=True).stdout


PROBE = """
<pre id="probe"></pre>
<script>
(() => {
  const problems = [];
  window.addEventListener("error", (event) => problems.push(event.message));
  const set = (id, value) => {
    const node = document.getElementById(id);
    node.value = value;
    node.dispatchEvent(new Event("input"));
  };
  const bytes = () => [...document.querySelectorAll("#models tbody tr")].map((row) => row.dataset.bytes);
  const data = JSON.parse(document.getElementById("data").textContent);
  const seen = [];
  for (const [tokens, batch] of [[0, 0], [data.lengths.length - 1, 3], [7, 2]]) {
    set("tokens", tokens);
    set("batch", batch);
    const lines = document.querySelectorAll("#lines polyline").length;
    const bars = document.querySelectorAll("#bars rect").length;
    seen.push({ tokens: data.lengths[tokens], batch: data.batches[batch], bytes: bytes(), lines, bars });
  }
  if (!document.getElementById("exact").disabled) {
    set("exact", 12345);
    seen.push({ tokens: 12345, batch: data.batches[2], bytes: bytes(), lines: 2, bars: 9 });
  }
  set("budget", "0.0001");
  const over = document.querySelectorAll("#models tr.no").length;
  const layers = document.querySelectorAll("#layers tbody tr").length;
  document.getElementById("probe").textContent = JSON.stringify({ seen, problems, over, layers });
})();
</script>
</body>"""


@pytest.mark.browser
@pytest.mark.skipif(BROWSER is None, reason="no Chromium here: apt install chromium")
def test_the_sliders_recompute_in_a_browser(tmp_path: Path) -> None:
    models = {"hybrid": HYBRID, "latent": LATENT}
    text = page([found(config, name) for name, config in models.items()])
    (tmp_path / "page.html").write_text(text.replace("</body>", PROBE))
    done = opened(tmp_path, "")
    match = re.search(r'<pre id="probe">(.*?)</pre>', done, re.DOTALL)
    assert match is not None
    probe = json.loads(match[1].replace("&lt;", "<").replace("&amp;", "&"))
    assert probe["problems"] == []
    assert len(probe["seen"]) == 4
    for seen in probe["seen"]:
        want = [found(config, tokens=seen["tokens"], batch_size=seen["batch"]).total_bytes for config in models.values()]
        assert [int(size) for size in seen["bytes"]] == want
        assert seen["lines"] == 2
        assert seen["bars"] >= 3
    assert (probe["over"], probe["layers"]) == (2, 4)


@pytest.mark.browser
@pytest.mark.skipif(BROWSER is None, reason="no Chromium here: apt install chromium")
def test_the_address_names_a_length_and_a_batch(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(page([found(HYBRID)]))
    done = opened(tmp_path, "#tokens=10000&batch=8")
    assert f'data-bytes="{found(HYBRID, tokens=10000, batch_size=8).total_bytes}"' in done


# Random requests: the page says what the command line says

PAGES = int(os.environ.get("KVCALC_PAGES", "24"))  # 300 before a release
SHAPES = {
    "hybrid": {**HYBRID, "hidden_size": 2048},
    "latent": LATENT,
    "plain": {**HYBRID, "model_type": "llama", "hidden_size": 2048},
}
RANKED = ("exact", "static", "paged", "vllm", "sglang", "tensorrt-llm")


def drawn(seed: int) -> tuple[str, str, dict[str, Any]]:
    """(engine, shape, what is asked), seeded."""
    draw = random.Random(seed)
    engine, shape = draw.choice((*RANKED, "transformers", "mlx-lm")), draw.choice(list(SHAPES))
    asked: dict[str, Any] = {"tokens": draw.choice((100, 4096, 40_000)), "batch_size": draw.choice((1, 3, 8))}
    if engine in RANKED:
        asked |= {name: draw.choice((1, 1, 2)) for name in ("tp_size", "pp_size", "dp_size")}
    return engine, shape, asked


def at(engine: str, shape: str, asked: dict[str, Any], **other: Any) -> int | None:
    """The command line's figure, or None where it refuses."""
    try:
        answer = found(SHAPES[shape], engine=engine, **{**asked, **other})
    except KvcalcError:
        return None
    return answer.total_bytes if answer.tally.fits else None


@pytest.mark.parametrize("seed", range(60))
def test_a_page_holds_the_command_lines_figures(seed: int) -> None:
    """Every cell of the page's data, whatever the ranks."""
    engine, shape, asked = drawn(seed)
    if at(engine, shape, asked) is None:
        pytest.skip("the engine refuses this one")
    data = data_of(page([found(SHAPES[shape], engine=engine, **asked)]))
    (model,) = data["models"]
    assert data["batch"] == asked["batch_size"]
    for batch in (data["batches"][0], data["batch"]):
        for tokens in (data["lengths"][0], data["tokens"], data["lengths"][-1]):
            want = at(engine, shape, asked, tokens=tokens, batch_size=batch)
            if model["rows"] is not None:
                have: int | None = sum(
                    row["count"] * size_of(slab, tokens, batch) for row in model["rows"] for slab in row["slabs"]
                )
            else:
                cell = model["grid"]["bytes"][data["batches"].index(batch)][data["lengths"].index(tokens)]
                have = None if cell is None else sum(cell)
            assert have == want


def size_of(slab: dict[str, Any], tokens: int, batch: int) -> int:
    """One array of one layer."""
    return batch * rows_of(slab["reach"], tokens) * int(slab["row_bytes"])


@pytest.mark.browser
@pytest.mark.skipif(BROWSER is None, reason="no Chromium here: apt install chromium")
@pytest.mark.parametrize("seed", range(1000, 1000 + PAGES))
def test_a_page_shows_the_command_lines_figures_in_a_browser(seed: int, tmp_path: Path) -> None:
    engine, shape, asked = drawn(seed)
    if at(engine, shape, asked) is None:
        pytest.skip("the engine refuses this one")
    text = page([found(SHAPES[shape], engine=engine, **asked)])
    (tmp_path / "page.html").write_text(text.replace("</body>", PROBE))
    match = re.search(r'<pre id="probe">(.*?)</pre>', opened(tmp_path, ""), re.DOTALL)
    assert match is not None
    probe = json.loads(match[1].replace("&lt;", "<").replace("&amp;", "&"))
    assert probe["problems"] == []
    for seen in probe["seen"]:
        want = at(engine, shape, asked, tokens=seen["tokens"], batch_size=seen["batch"])
        assert [int(size) if size else None for size in seen["bytes"]] == [want]
