"""What changed in llama.cpp over time, as far as caches go.

Source: each release's ``src/llama-model.cpp`` (load_hparams, create_memory), ``src/llama-context.cpp``,
``src/llama-kv-cache*.cpp``, ``src/llama-arch.cpp`` and ``common/common.h``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from kvcalc.core.gguf import GgufMetadata
from kvcalc.engines.llamacpp.arches import ARCHES, PLAIN, Arch, Window, names
from kvcalc.engines.llamacpp.hparams import Hparams, read_hparams
from kvcalc.engines.releases import Change, Releases, Rules

PATTERN = "attention.sliding_window_pattern"
_SWA_WIDTHS = ("attention.key_length_swa", "attention.value_length_swa")
_LISTED = "attention.recurrent_layers"


@dataclass(frozen=True, slots=True)
class Release:
    """One release's rules. Unmentioned fields are today's."""

    name: str
    arches: Mapping[str, Arch] = field(default_factory=dict)
    pad_without_flash: int = 256  # 32 in older ones; with flash attention always 256
    divides: str = "padded"  # how a context is divided among sequences: padded first, rounded up, or not at all (shared)
    hybrid_undivided: bool = False  # hybrids give each sequence the whole context
    window_rounded_last: bool = False
    latents: bool = True  # a latent (MLA) is stored; before, every head's own keys and values
    latent_values: bool = False  # latent attention stores its values as well
    window_batch: bool = False  # a sliding cache has room for n_batch, not for n_ubatch
    widest_values: bool = True  # transposed values are as wide as the widest layer's
    patterns: str = "all"  # which forms of sliding_window_pattern are read: all, numbers, none
    pattern_arches: frozenset[str] = frozenset()  # these read it all the same
    ignored: tuple[str, ...] = ()  # keys that it doesn't know
    nextn_arches: frozenset[str] | None = None  # older ones leave out the predicting blocks of these alone
    checks_heads: bool = True  # a quantised cache needs a head size of whole blocks under flash attention
    same_types: bool = True  # latent attention needs equal K and V types
    flash_by_default: bool = True
    max_sequences: int = 256
    smallest_batch: int = 0
    server_context: int = 0  # 0: the model's own
    server_sequences: int = 4  # shared by unified mode, unless parallel is given

    def read(self, metadata: Mapping[str, object], name: str, where: str) -> Hparams:
        """The engine's view of a file. Raises EngineError."""
        arch = self.arches[name]
        hparams = read_hparams(self._seen(metadata, name), name, arch, where)
        if self.nextn_arches is not None and name in self.nextn_arches:
            nextn = metadata.get(f"{name}.nextn_predict_layers", 0)
            if isinstance(nextn, int) and 0 < nextn <= hparams.layers:
                return replace(hparams, kv_layers=hparams.layers - nextn)
        return hparams

    def _seen(self, metadata: Mapping[str, object], name: str) -> Mapping[str, object]:
        """The keys that this release reads."""
        dropped = {f"{name}.{key}" for key in self.ignored}
        if self.nextn_arches is not None:
            dropped.add(f"{name}.nextn_predict_layers")
        number = isinstance(metadata.get(f"{name}.{PATTERN}"), int)
        if name not in self.pattern_arches and (self.patterns == "none" or (self.patterns == "numbers" and not number)):
            dropped.add(f"{name}.{PATTERN}")
        if not dropped & set(metadata):
            return metadata
        values = {key: value for key, value in metadata.items() if key not in dropped}
        types = metadata.types if isinstance(metadata, GgufMetadata) else {}
        return GgufMetadata(values, types, metadata.tensors if isinstance(metadata, GgufMetadata) else None)


_B4600 = names(
    "arctic baichuan bert bitnet bloom chameleon chatglm codeshell cohere2 command-r dbrx deci deepseek deepseek2 exaone falcon "
    "gemma gemma2 gpt2 gptneox granite granitemoe grok internlm2 jais jina-bert-v2 llama mamba minicpm minicpm3 mpt nemotron "
    "nomic-bert olmo olmo2 olmoe openelm orion phi2 phi3 phimoe plamo qwen qwen2 qwen2moe qwen2vl refact rwkv6 rwkv6qwen2 "
    "stablelm starcoder starcoder2 t5 t5encoder wavtokenizer-dec xverse"
)
_B5135 = [*_B4600, *names("arwkv7 bailingmoe gemma3 glm4 llama4 plm qwen3 qwen3moe rwkv7")]
_B5427 = [*_B5135, "nomic-bert-moe"]
_B6673 = [
    *_B5427,
    *names(
        "apertus arcee dots1 dream ernie4_5 ernie4_5-moe exaone4 falcon-h1 gemma-embedding gemma3n glm4moe gpt-oss granitehybrid"
    ),
    *names("grovemoe hunyuan-dense hunyuan-moe jamba jina-bert-v3 lfm2 llada llada-moe mamba2 nemotron_h neo-bert plamo2"),
    *names("seed_oss smallthinker smollm3"),
]
_B7698 = [
    *_B6673,
    *names("afmoe bailingmoe2 cogvlm lfm2moe llama-embed maincoder mimo2 minimax-m2 mistral3 modern-bert nemotron_h_moe"),
    *names("pangu-embedded plamo3 qwen3next qwen3vl qwen3vlmoe rnd1"),
]
_B8095 = [*_B7698, *names("exaone-moe glm-dsa kimi-linear qwen35 qwen35moe step35")]
_B8390 = [*_B8095, *names("eurobert jais2 mistral4 paddleocr")]


def _arches(known: list[str], **changes: Arch) -> dict[str, Arch]:
    """Today's rows without snapshots and MTP contexts, and what was otherwise then."""
    rows = {name: replace(ARCHES[name], rollback=False, mtp_plain=False) for name in known}
    return {**rows, **{name.replace("__", "-"): row for name, row in changes.items()}}


_STRICT_GEMMA3 = Arch(window=Window(6, None))
_ENCODER_WITH_CACHE = Arch(window=Window(6, None), noncausal=True)
_LATENT_ALONE = Arch(mla="optional")
_LFM2 = replace(ARCHES["lfm2"], window=None, rollback=False)
_NEXTN_8095 = frozenset({"glm4", "glm4moe", "glm-dsa", "bailingmoe2"})
_LATEST = "0.5.0-dev"

_B4600_RULES = Release(
    "b4600",
    _arches(_B4600, gemma2=PLAIN, cohere2=PLAIN, olmo2=PLAIN, deepseek2=PLAIN),
    pad_without_flash=32,
    divides="shared",
    widest_values=False,
    nextn_arches=frozenset(),
    checks_heads=False,
    same_types=False,
    flash_by_default=False,
    max_sequences=2**31,
    smallest_batch=64,
    server_context=4096,
    server_sequences=1,
    latents=False,
    ignored=_SWA_WIDTHS,
)
_B5640_RULES = Release(
    "b5640",
    _arches(_B5427, gemma3=_STRICT_GEMMA3, olmo2=PLAIN, llama4=Arch(window=Window(4, 8192, fixed=8192))),
    pad_without_flash=32,
    divides="shared",
    window_rounded_last=True,
    latent_values=True,
    widest_values=False,
    patterns="none",
    nextn_arches=frozenset(),
    checks_heads=False,
    same_types=False,
    flash_by_default=False,
    max_sequences=64,
    smallest_batch=64,
    server_context=4096,
    server_sequences=1,
    ignored=_SWA_WIDTHS,
)

BY_NAME: dict[str, Release] = {
    release.name: release
    for release in (
        _B4600_RULES,
        replace(
            _B4600_RULES,
            name="b5135",
            arches=_arches(_B5135, gemma2=PLAIN, gemma3=PLAIN, cohere2=PLAIN, olmo2=PLAIN, llama4=PLAIN),
            latents=True,
            latent_values=True,
        ),
        replace(_B5640_RULES, name="b5427", window_batch=True, max_sequences=2**31),
        replace(_B5640_RULES, name="b5554"),
        _B5640_RULES,
        Release(
            "b6673",
            _arches(_B6673, gemma3=_STRICT_GEMMA3, gemma__embedding=_ENCODER_WITH_CACHE, lfm2=_LFM2),
            pad_without_flash=32,
            divides="rounded up",
            hybrid_undivided=True,
            window_rounded_last=True,
            latent_values=True,
            patterns="none",
            nextn_arches=frozenset({"glm4moe"}),
            same_types=False,
            smallest_batch=64,
            server_context=4096,
            server_sequences=1,
            ignored=(*_SWA_WIDTHS, _LISTED),
        ),
        Release(
            "b7698",
            _arches(_B7698, lfm2=_LFM2),
            hybrid_undivided=True,
            latent_values=True,
            patterns="none",
            pattern_arches=frozenset({"plamo3", "mimo2"}),
            nextn_arches=frozenset({"glm4moe", "bailingmoe2"}),
            same_types=False,
            ignored=(*_SWA_WIDTHS, _LISTED),
        ),
        Release(
            "b8095",
            _arches(_B8095, glm__dsa=_LATENT_ALONE, lfm2=_LFM2),
            patterns="none",
            pattern_arches=frozenset({"plamo3", "mimo2", "step35"}),
            nextn_arches=_NEXTN_8095,
            same_types=False,
            ignored=(*_SWA_WIDTHS, _LISTED),
        ),
        Release(
            "b8390",
            _arches(_B8390, glm__dsa=_LATENT_ALONE),
            patterns="numbers",
            pattern_arches=frozenset({"mimo2", "step35"}),
            nextn_arches=_NEXTN_8095,
            same_types=False,
            ignored=(_LISTED,),
        ),
        Release("0.5.0", {name: row for name, row in ARCHES.items() if name != "glm5-next"}),
        Release(_LATEST, ARCHES),
    )
}


def _new_names() -> tuple[Change, ...]:
    """The architectures that each release has beyond those of the one before, in a sentence."""
    found = []
    for before, after in pairwise(BY_NAME.values()):
        if new := [name for name in after.arches if name not in before.arches]:
            found.append(Change(f"new in {after.name}", after.name, f"new architectures: {', '.join(sorted(new))}"))
    return tuple(found)


# Latents, windows and micro-batches stand at the build that brought them (the first within a few builds, of 15 April 2025);
# everything else at the first build that was measured with it.
CHANGES: tuple[Change, ...] = (
    Change("latents", "b5135", "a latent (MLA) and its values are stored, where every head's own keys and values were before"),
    Change(
        "windows", "b5427", "sliding layers have caches of their own: a window for each sequence, and a batch (n_batch) beyond"
    ),
    Change("ubatch", "b5554", "a sliding cache has room for a micro-batch (n_ubatch) beyond its windows, not for a whole batch"),
    Change("most_64", "b5554", "64 sequences are the most"),
    Change("streams", "b6673", "a context is divided among its sequences, unless kv-unified has them share one cache"),
    Change("hybrids_whole", "b6673", "in a model with recurrent layers, each sequence has the whole context"),
    Change("most_256", "b6673", "256 sequences are the most"),
    Change(
        "flash_auto",
        "b6673",
        "flash attention is on unless it is switched off; a quantised cache then needs heads of whole blocks",
    ),
    Change("widest", "b6673", "without flash attention all layers' values are stored as wide as the widest layer's"),
    Change("olmo_3", "b6673", "OLMo 3's windows are read; a Llama 4 file whose window is 0 slides nowhere"),
    Change(
        "by_256",
        "b7698",
        "cells come by 256, with flash attention or without; a window is rounded up after it is cut at the context",
    ),
    Change(
        "server", "b7698", "llama-server takes the model's own context for 4 sequences that share it, not 4,096 cells for one"
    ),
    Change("small_batch", "b7698", "a batch may be smaller than 64"),
    Change("gemma_3", "b7698", "a Gemma 3 file may lack a window; Gemma's embedding model keeps no cache"),
    Change("latent_alone", "b8095", "a latent's values are no longer stored beside it"),
    Change("hybrids_divided", "b8095", "a context is divided in models with recurrent layers too"),
    Change("glm_4", "b8095", "GLM-4's blocks that predict further tokens have no cache"),
    Change("window_patterns", "b8390", "a sliding pattern that the file names as a number is read"),
    Change("window_widths", "b8390", "sliding layers may have head sizes of their own (key_length_swa, value_length_swa)"),
    Change("lfm2", "b8390", "LFM2's attention layers slide where its file has a window"),
    Change("window_lists", "0.5.0", "a sliding pattern that the file lists layer by layer is read for every architecture"),
    Change("recurrent_lists", "0.5.0", "recurrent layers are those that the file lists (attention.recurrent_layers), if it does"),
    Change("indexers", "0.5.0", "GLM-DSA's index keys have a cache"),
    Change("one_type", "0.5.0", "a latent's keys and values must be of one type: they are one array"),
    Change(
        "predicting",
        "0.5.0",
        "no block that predicts further tokens has a cache in the model's own context; context-type=mtp has",
    ),
    Change("snapshots", "0.5.0", "recurrent layers of some architectures keep n-rs-seq snapshots more"),
    *_new_names(),
)
RELEASES = Releases("llama.cpp", tuple(BY_NAME), CHANGES)


def release_of(rules: Rules) -> Release:
    """The rules of the nearest release that was read, at or before the one that is asked for."""
    return BY_NAME[rules.name]
