"""vLLM: what its memory profiling finds beside the weights, by release (v1/worker/gpu_worker.py: determine_available_memory).

    other = non-torch + max(forward pass, sampler) + the estimate of CUDA graphs, from 0.20 on and where graphs are taken

- sampler: so many times the logits of ``max-num-seqs`` sequences in float32, whatever the model. PyTorch's, which sorts them,
  takes 9.65 (stated in the logs of 4B, 8B and 30B models alike); a Triton kernel (0.17) or FlashInfer (0.21), about 3.
- forward pass: ``max-num-batched-tokens`` · 2 · (3 · intermediate / tp + 6 · hidden) bytes, times 0.6 to 1.5.
- non-torch: what CUDA and NCCL take, by the number of ranks.

The factors are read off public starts; for encoders, latents over many ranks and unified memory the observed range counts.
Up to 0.19 CUDA graphs lie outside the budget, in what ``gpu-memory-utilization`` leaves free.
"""

from __future__ import annotations

from kvcalc.engines.other_memory.facts import GIB, Facts, Other, gib, not_covered
from kvcalc.units import ceil_div, format_bytes
from kvcalc.values import value

FLOAT32 = 4
GRAPHS = (0.05, 0.8)  # GiB: the estimate that is subtracted; what is taken may be less
WORKSPACE = (0.0, 0.4)  # GiB where no estimate widens the interval: kernels of quantised weights (AWQ on a T4) take so much more
FORWARD = (0.6, 1.5)
NON_TORCH = ((1, 0.02, 0.15), (2, 0.1, 0.5))  # ranks of one copy: GiB
COVERED_RANKS = 2
VOCABULARIES = (32_000, 262_144)  # where a file names none: those of nearly all published models


@value
class Sampler:
    """Times the float32 logits that the sampler's dry run takes, and by which of its ways."""

    since: str
    low: float
    high: float
    said: str


# v1/sample/ops/topk_topp_sampler.py of each release. Newest first.
PYTORCH = Sampler("0", 8.3, 9.7, "PyTorch's sampler, 9.65 x max-num-seqs x vocabulary x 4 bytes")
SAMPLERS = (
    Sampler("0.21.0", 2.4, 3.3, "FlashInfer's sampler"),
    Sampler("0.17.0", 2.6, 3.6, "the Triton sampler"),
    PYTORCH,
)
# vLLM before 0.11.1 takes FlashInfer's sampler wherever FlashInfer is installed; later ones up to 0.20 only when told to.
INSTALLED = Sampler("0.8.5", 2.0, 4.0, "FlashInfer's sampler")


@value
class Observed:
    """Starts for which no formula holds: the least and the most that was seen, in GiB, and in how many."""

    low: float
    high: float
    rows: int
    what: str


MULTIMODAL = Observed(0.35, 3.73, 20, "multimodal models, which profile their encoder too")
LATENTS = Observed(2.46, 7.11, 7, "latent attention over 4 ranks or more")
UNIFIED = Observed(2.92, 5.77, 5, "text models on a GB10")


def other(facts: Facts) -> Other:
    """The interval for one rank's card."""
    ranks, sizes = _ranks(facts), facts.sizes
    if not facts.card.cuda:
        return not_covered("vLLM on a card other than NVIDIA's")
    if facts.card.unified:
        return _seen(UNIFIED)
    if sizes.multimodal:
        return _seen(MULTIMODAL, "--limit-mm-per-prompt 0 leaves the encoder's profiling out")
    if sizes.latent and ranks > COVERED_RANKS:
        return _seen(LATENTS)
    if facts.flag("enable-expert-parallel"):
        return not_covered("vLLM with expert parallelism")
    if ranks > COVERED_RANKS:
        return not_covered(f"vLLM with a text model over {ranks} ranks", _rule(facts, COVERED_RANKS).low / GIB)
    return _rule(facts, ranks)


def _seen(observed: Observed, advice: str = "") -> Other:
    basis = f"the range of {observed.rows} public starts of {observed.what}"
    return gib(observed.low, observed.high, basis, advice)


def _ranks(facts: Facts) -> int:
    request = facts.request
    tp, pp = facts.number("tensor-parallel-size", request.tp_size), facts.number("pipeline-parallel-size", request.pp_size)
    return tp * pp


def _rule(facts: Facts, ranks: int) -> Other:
    sampler, batched, seqs = _sampler(facts), _batched(facts), _seqs(facts)
    vocabulary = facts.sizes.vocabulary
    words = (vocabulary, vocabulary) if vocabulary else VOCABULARIES
    logits = [seqs * count * FLOAT32 * times / GIB for count, times in zip(words, (sampler.low, sampler.high), strict=True)]
    low, high = (max(pair) for pair in zip(_forward(facts, batched), logits, strict=True))
    graphs = GRAPHS if _counts_graphs(facts) else WORKSPACE
    _, least, most = NON_TORCH[ranks - 1]
    return gib(low + least + graphs[0], high + most + graphs[1], _basis(facts, sampler, seqs, batched), _advice(logits[1], seqs))


def _basis(facts: Facts, sampler: Sampler, seqs: int, batched: int) -> str:
    words = facts.sizes.vocabulary
    low, high = VOCABULARIES
    known = f"{words:,} words" if words else f"{low:,} to {high:,} words, since the file names no vocabulary"
    graphs = "CUDA graphs estimated" if _counts_graphs(facts) else "CUDA graphs outside the budget"
    if facts.flag("enforce-eager"):
        graphs = "no CUDA graphs"
    largest = f"max({sampler.said} of {seqs:,} sequences and {known}, {batched:,} tokens a step)"
    return f"rule of vLLM {facts.rules.asked}: {largest}; {graphs}"


def _advice(logits: float, seqs: int) -> str:
    """Fewer sequences, where their logits weigh."""
    if logits < 1 or seqs <= 256:
        return ""
    return f"-o max-num-seqs=256 frees about {format_bytes(round(logits * GIB * (1 - 256 / seqs)))}"


def _forward(facts: Facts, batched: int) -> tuple[float, float]:
    sizes = facts.sizes
    if not sizes.hidden:
        return 0.0, 0.0
    tp = facts.number("tensor-parallel-size", facts.request.tp_size)
    wide = ceil_div(sizes.intermediate or 4 * sizes.hidden, tp)
    bytes_taken = batched * 2 * (3 * wide + 6 * sizes.hidden) / GIB
    return FORWARD[0] * bytes_taken, FORWARD[1] * bytes_taken


def _sampler(facts: Facts) -> Sampler:
    rules = facts.rules
    if facts.flag("flashinfer") and not rules.since("0.11.1"):
        return INSTALLED
    return next((each for each in SAMPLERS if each is PYTORCH or rules.since(each.since)), PYTORCH)


def _counts_graphs(facts: Facts) -> bool:
    return facts.rules.since("0.20.0") and facts.flag("enforce-eager") is not True


_SMALL, _LARGE, _HUGE = (2048, 256), (8192, 1024), (16384, 1024)  # tokens a step, sequences (engine/arg_utils.py)


def _defaults(facts: Facts) -> tuple[int, int]:
    named = {"small": _SMALL, "large": _LARGE, "huge": _HUGE}.get(str(facts.request.options.get("card", "")))
    if named is not None:
        return named
    if facts.card.bytes >= 160 * GIB:
        return _HUGE
    return _LARGE if facts.card.bytes >= 70 * GIB and "a100" not in facts.card.name.lower() else _SMALL


def _seqs(facts: Facts) -> int:
    return facts.number("max-num-seqs", _defaults(facts)[1])


def _batched(facts: Facts) -> int:
    return facts.number("max-num-batched-tokens", _defaults(facts)[0])
