"""From the words of a command line to a Request, each value with its origin."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from kvcalc.cli.options import OneSize, Rules, Types
from kvcalc.core.model import Request
from kvcalc.dtypes import Dtype, find_dtype
from kvcalc.engines import defaults_of, find_engine
from kvcalc.engines.base import Engine
from kvcalc.errors import UsageError
from kvcalc.units import parse_count, parse_counts

MAX_LENGTHS = 1_000_000
_THOUSANDS, _GROUPED = re.compile(r"\d{1,3}(,\d{3})+", re.ASCII), re.compile(",")  # 32,768 as tables print it
MAX_AXIS = 10_000  # values of a batch axis


def engine_and_request(types: Types, rules: Rules, size: OneSize | None = None) -> tuple[Engine, Request]:
    """The engine that is asked, and the request. Raises UsageError, DtypeError, EngineError."""
    engine = find_engine(rules.engine)
    origins: dict[str, str] = {}
    k_dtype, v_dtype = _types(types, origins)
    tokens = _given(size.tokens if size else None, "tokens", "--tokens", origins)
    batch = _given(size.batch if size else None, "batch_size", "--batch", origins)
    lengths = _lengths(size.lengths, origins) if size and size.lengths is not None else ()
    if lengths and (tokens is not None or batch is not None):
        raise UsageError("--lengths says both how long and how many", fix="leave out --tokens and --batch")
    request = Request(
        batch_size=batch or 1,
        tokens=tokens,
        k_dtype=k_dtype,
        v_dtype=v_dtype,
        encoder_tokens=_encoder(rules.encoder_tokens, origins),
        lengths=lengths,
        draft=rules.draft,
        tp_size=_given(rules.tp, "tp_size", "--tp", origins) or 1,
        pp_size=_given(rules.pp, "pp_size", "--pp", origins) or 1,
        dp_size=_given(rules.dp, "dp_size", "--dp", origins) or 1,
        options={**defaults_of(rules.engine), **engine.parse_options(rules.option)},
        origins=origins,
    )
    return engine, engine.with_sequences(request)


def _given(text: str | None, name: str, flag: str, origins: dict[str, str]) -> int | None:
    if text is None:
        return None
    text = _GROUPED.sub("", text) if _THOUSANDS.fullmatch(text.strip()) else text
    if ".." in text or "," in text:
        raise UsageError(f"{flag} takes one value here, not {text[:40]!r}", fix="kvcalc sweep takes ranges and lists")
    origins[name] = f"flag {flag}"
    return parse_count(text, f"a value of {flag}")


def _encoder(text: str | None, origins: dict[str, str]) -> int | None:
    """Encoder positions; 0 is a value here (no image)."""
    if text is not None and text.strip() == "0":
        origins["encoder_tokens"] = "flag --encoder-tokens"
        return 0
    return _given(text, "encoder_tokens", "--encoder-tokens", origins)


def _types(types: Types, origins: dict[str, str]) -> tuple[Dtype | None, Dtype | None]:
    found: dict[str, Dtype | None] = {"k_dtype": None, "v_dtype": None}
    sides: Mapping[str, str | None] = {"k_dtype": types.k_dtype, "v_dtype": types.v_dtype}
    for name, text in sides.items():
        chosen = text or types.dtype
        if chosen is not None:
            found[name] = find_dtype(chosen)
            origins[name] = f"flag --{name.replace('_', '-')}" if text else "flag --dtype"
    return found["k_dtype"], found["v_dtype"]


def _lengths(text: str, origins: dict[str, str]) -> tuple[int, ...]:
    """``512,8k,32k``, or a file with one length a line."""
    from kvcalc.readers.lengths import read_lengths

    if not text.strip():
        raise UsageError("--lengths names no length", fix="write --lengths 512,8k,32k, or name a file")
    origins["tokens"] = origins["batch_size"] = "flag --lengths"
    path = Path(text)
    if text[:1].isdigit() and not path.is_file():
        found = tuple(value for value, _ in zip(parse_counts(text), range(MAX_LENGTHS + 1), strict=False))
    else:
        found = read_lengths(path, MAX_LENGTHS)
    if len(found) > MAX_LENGTHS:
        raise UsageError(f"--lengths names over {MAX_LENGTHS:,} sequences", fix="take a sample of them")
    return found


def type_axis(types: Types) -> tuple[tuple[Dtype | None, Dtype | None], ...]:
    """The types of a sweep: ``--dtype bf16,q8_0`` lists them; --k-dtype and --v-dtype stand for one side of each."""
    both = [find_dtype(word) for word in types.dtype.split(",")] if types.dtype else [None]
    k_dtype = find_dtype(types.k_dtype) if types.k_dtype else None
    v_dtype = find_dtype(types.v_dtype) if types.v_dtype else None
    return tuple(dict.fromkeys((k_dtype or each, v_dtype or each) for each in both))
