"""What llama.cpp does with each architecture name: one row each, read from its source.

Source: llama.cpp 0.5.0-dev, ``src/llama-arch.cpp`` (names), ``src/models/*.cpp: load_arch_hparams`` (windows, latents,
states), ``src/llama-model.cpp: create_memory`` (which caches). A row says only what differs from plain attention.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Window:
    """How an architecture slides.

    ``pattern``: every n-th layer is dense (0: all slide), unless the file has an array or a number; None: the file
    must have an array. ``size`` stands where the file has no window; None: it must have one; 0: without one nothing
    slides. ``fixed`` is taken whatever the file says. ``only_layers`` is the block count at which it slides at all.
    """

    pattern: int | None
    size: int | None
    dense_first: bool = False
    fixed: int = 0
    only_layers: int = 0
    zero_is_none: bool = False  # an explicit 0 switches it off
    nextn_slides: bool = False  # the multi-token-prediction blocks slide too
    headed_layers: bool = False  # the layers with KV heads slide, and no others


@dataclass(frozen=True, slots=True)
class Arch:
    """One architecture name.

    ``memory``: kv, none, recurrent, hybrid, or one of the layouts with an indexer.
    ``state``: which formula gives the recurrent state: ssm, ssm_ungrouped, rwkv, shortconv, kda, lightning.
    ``recurrent``: which layers have it: headless (no KV heads), blocks (no KV heads, no feed-forward), interval, all,
    both (every layer is attention and recurrent at once).
    """

    memory: str = "kv"
    window: Window | None = None
    mla: str = ""  # optional, required: the _mla keys are read
    state: str = ""
    recurrent: str = ""
    interval: int = 0
    rollback: bool = False  # keeps n_rs_seq snapshots more
    mtp_plain: bool = False  # an MTP context is a plain attention cache over the last blocks
    kv_layers: int = 0  # only the first N layers have a cache, whatever the file says
    shares_kv: bool = False  # attention.shared_kv_layers is read
    latent_values: bool = False  # the value width is kv_lora_rank
    indexer: bool = False  # the indexer keys are required
    no_flash: bool = False  # flash attention is forced off
    loops: bool = False  # num_loops multiplies the layers
    router: bool = False  # one hidden layer more, with one head
    noncausal: bool = False
    beside: str = ""  # a draft that runs beside its target's context: always, or where it lacks embeddings
    needs: tuple[str, ...] = ()  # further keys without which the file is refused


def names(text: str) -> list[str]:
    """Architecture names, parted by spaces."""
    return text.split()


PLAIN = Arch()
_NONE = Arch(memory="none")
_OPTIONAL_WINDOW = Arch(window=Window(4, 0))
_ARRAY_WINDOW = Arch(window=Window(None, None))
_MAMBA2 = Arch(memory="hybrid", state="ssm", recurrent="headless")
_DELTA = Arch(memory="hybrid", state="ssm", recurrent="interval", interval=4, mtp_plain=True)
_RWKV = Arch(memory="recurrent", state="rwkv", recurrent="all")
_KDA = Arch(memory="hybrid", state="kda", recurrent="headless", mla="required")
_LATENT = Arch(mla="optional")
_INDEXED = Arch(memory="dsa", mla="optional", indexer=True)
_DRAFT = Arch(beside="without embeddings")

PLAIN_NAMES = names(
    "llama deci falcon gpt2 gptneox mpt baichuan starcoder refact bloom stablelm qwen qwen2 qwen2moe qwen2vl qwen3 qwen3moe "
    "qwen3vl qwen3vlmoe phi2 phi3 phimoe plamo codeshell orion internlm2 minicpm minicpm3 gemma starcoder2 xverse command-r "
    "dbrx olmo olmoe openelm arctic deepseek deepseek2-ocr chatglm glm4 glm4moe bitnet t5 t5encoder jais jais2 nemotron "
    "exaone granite granitemoe chameleon plm bailingmoe bailingmoe2 dots1 arcee ernie4_5 ernie4_5-moe hunyuan-moe "
    "hunyuan-dense hunyuan_vl hy_v3 smollm3 seed_oss grovemoe apertus hrm_text minimax-m2 cogvlm pangu-embedded mistral3 "
    "paddleocr llama-embed maincoder talkie qwen3tts pockettts"
)

ARCHES: dict[str, Arch] = {
    **dict.fromkeys(PLAIN_NAMES, PLAIN),
    # no cache: encoders, and diffusion models, which see the whole text at each step
    **dict.fromkeys(
        names("bert modern-bert nomic-bert nomic-bert-moe neo-bert jina-bert-v2 jina-bert-v3 eurobert wavtokenizer-dec"), _NONE
    ),
    **dict.fromkeys(names("gemma-embedding dream llada llada-moe rnd1"), replace(_NONE, noncausal=True)),
    "grok": Arch(no_flash=True),
    "nanbeige": Arch(loops=True),
    "graniteswitch": Arch(router=True),
    # sliding windows: the architecture decides, not the key
    "gemma2": Arch(window=Window(2, 4096)),
    "gemma3": Arch(window=Window(6, 0)),
    "gemma3n": Arch(window=Window(5, None), kv_layers=20),
    "gemma4": Arch(window=Window(None, None), shares_kv=True, needs=("attention.key_length_swa", "attention.value_length_swa")),
    "gemma4-assistant": Arch(memory="none", beside="always"),
    "gpt-oss": Arch(window=Window(2, None)),
    "cohere2": Arch(window=Window(4, None)),
    "cohere2moe": Arch(window=Window(4, None, dense_first=True)),
    "exaone4": Arch(window=Window(4, 4096, only_layers=64)),
    "exaone-moe": Arch(window=Window(4, None)),
    "llama4": Arch(window=Window(4, 8192, fixed=8192, zero_is_none=True)),  # chunks, kept like windows
    "olmo2": _OPTIONAL_WINDOW,
    "afmoe": _OPTIONAL_WINDOW,
    "mellum": _OPTIONAL_WINDOW,
    "plamo3": Arch(window=Window(8, 0)),
    "laguna": Arch(window=Window(4, 0, dense_first=True)),
    "smallthinker": Arch(window=Window(4, 0, dense_first=True, fixed=4096)),
    "muse-glimmer": Arch(window=Window(4, None)),
    "mimo2": _ARRAY_WINDOW,
    "step35": _ARRAY_WINDOW,
    "granite_swa": _ARRAY_WINDOW,
    "spark2_5": _ARRAY_WINDOW,
    "maple": _ARRAY_WINDOW,
    # latent attention, indexers
    "deepseek2": _LATENT,
    "mistral4": _LATENT,
    "deepseek32": _INDEXED,
    "glm-dsa": _INDEXED,
    "hy_v4": Arch(memory="dsa_unfiltered", mla="required"),
    "dots3note": Arch(memory="dsa_window", mla="required", indexer=True, window=Window(None, None)),
    "minimax-m3": Arch(memory="msa", indexer=True),
    "deepseek4": Arch(memory="compressed", indexer=True, rollback=True, window=Window(0, None, nextn_slides=True)),
    # recurrent alone
    "mamba": Arch(memory="recurrent", state="ssm_ungrouped", recurrent="all"),
    "mamba2": Arch(memory="recurrent", state="ssm", recurrent="all"),
    "rwkv6": _RWKV,
    "rwkv6qwen2": _RWKV,
    "rwkv7": _RWKV,
    "arwkv7": _RWKV,
    # attention and recurrent layers
    "jamba": replace(_MAMBA2, state="ssm_ungrouped"),
    "granitehybrid": _MAMBA2,
    "plamo2": _MAMBA2,
    "falcon-h1": replace(_MAMBA2, recurrent="both"),
    "nemotron_h": replace(_MAMBA2, recurrent="blocks", rollback=True),
    "nemotron_h_moe": replace(_MAMBA2, recurrent="blocks", rollback=True, mtp_plain=True),
    "qwen3next": _DELTA,
    "qwen35": replace(_DELTA, rollback=True),
    "qwen35moe": replace(_DELTA, rollback=True),
    "qwen4exp": replace(_DELTA, memory="hybrid_indexed", rollback=True, mtp_plain=False, indexer=True),
    "minimax-01": Arch(memory="hybrid", state="lightning", recurrent="interval", interval=8),
    "lfm2": Arch(
        memory="hybrid", state="shortconv", recurrent="headless", rollback=True, window=Window(0, 0, headed_layers=True)
    ),
    "lfm2moe": Arch(memory="hybrid", state="shortconv", recurrent="headless", rollback=True),
    "kimi-linear": _KDA,
    "kimi-k3": replace(_KDA, rollback=True, latent_values=True),
    "bailingmoe3": replace(_KDA, rollback=True, mtp_plain=True),
    "glm5-next": replace(_KDA, memory="hybrid_pooled", rollback=True, latent_values=True, indexer=True),
    # speculative drafts
    "eagle3": _DRAFT,
    "dflash": replace(_DRAFT, memory="draft_flash"),
}

# these have a graph for the blocks that predict further tokens; where the caches are split by block, others fail
MTP_GRAPHS = frozenset(
    names(
        "bailingmoe3 cohere2moe deepseek2 deepseek32 deepseek4 glm-dsa glm4moe glm5-next hy_v3 mimo2 nemotron_h_moe qwen35 "
        "qwen35moe qwen3next step35"
    )
)
SPLIT_BY_BLOCK = frozenset(("kv", "dsa", "dsa_window", "compressed", "hybrid_pooled", "draft_flash"))

# in llama.cpp's list, without a model behind the name
UNUSABLE = {
    "clip": "a vision projector (mmproj) holds no language model and no cache",
    "gptj": "llama.cpp lists the name, and can load no such model",
}
WHOLE_ROTATION = frozenset(names("llama deci falcon llama-embed"))
MAX_LAYERS = 512  # LLAMA_MAX_LAYERS
MAX_SEQUENCES = 256  # LLAMA_MAX_SEQ
GLM_5_2_CONTEXT = 1_048_576  # from here on glm-dsa files without indexer.types are GLM-5.2: two full layers, then every 4th
