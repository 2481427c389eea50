"""Write ``kvcalc/architectures/class_defaults.py`` from the installed transformers.

    python tests/tools/generate_class_defaults.py            write the file
    python tests/tools/generate_class_defaults.py --check    fail when the file differs from what would be written
    python tests/tools/generate_class_defaults.py --dump F   only write this release's rows to the JSON file F
    python tests/tools/generate_class_defaults.py --older F  an older release's rows from F (else those that stand are kept)

A new release is taken in by running the script and reading the diff. What is written is what a config class *declares*
for a missing key; what its code derives from other keys (layer_types from num_hidden_layers, head_dim from hidden_size)
stays None, or out, so that the rules derive it from the file's own values.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any


def words(text: str) -> frozenset[str]:
    """A set, written as prose."""
    return frozenset(text.split())


ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "kvcalc" / "architectures" / "class_defaults.py"
MAPPINGS = (  # what can generate text, or speech by a text-like decoder
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "MODEL_FOR_TEXT_TO_SPECTROGRAM_MAPPING_NAMES",
    "MODEL_FOR_TEXT_TO_WAVEFORM_MAPPING_NAMES",
)
# A key belongs in a row when one of its words can change a cache's size ...
KEEP = words(
    """layers layer heads head hidden_size dim dims window windows chunk rank kernel conv state ssm expand mamba linear
    lightning attn attention block blocks pattern model kv embd embed groups group index indexer share shared sharing
    swa sliding local global cross decoder encoder cache positions position embeddings max query queries architecture
    alibi loop loops cycles compress ratio rates prompt hybrid dtype period offset interval full recurrent width inner
    size gqa mqa mla n every key value interleave bypass looped passes num length type types factor double latent kpool
    lru rope nope indices d l c bucket hash kda ple ngram exclusive source"""
)
# ... and none of them says that it is about something else.
DROP = words(
    """dropout bias token tokens vocab loss coef init initializer eps epsilon act activation norm theta router experts expert
    moe topk softcapping layerdrop image vision video audio patch pixel scaling scale std id ids range probs prob pdrop
    drop classifier mlp ffn intermediate mlp mask labels projector projection summary pretraining torchscript logits
    logit temperature mel codebook codevector spec feat feature features box noise alpha beta lower upper lambda path
    gate gated depths qformer rms ctc stride strides parameters interleave label return output residual multiplier input
    tie word clip factorized fft sampling rate frame frames speaker mup problem quantizer quantizers codebooks upsample
    downsample adapter adaptor time_step spectrogram spatial temporal merge"""
)
# Keys whose words would drop them, though they decide a size.
ALWAYS = words(
    """intermediate_size mamba_intermediate dtype num_hidden_layers mlp_layer_types layers_block_type first_k_dense_replace
    num_nextn_predict_layers num_codebooks conv_stride audio_channels n_codes_total mamba_ssm_cache_dtype
    mamba_ssm_dtype mm_tokens_per_image vision_output_dim image_seq_length moe_layers qk_layernorm is_decoder
    is_encoder_decoder tie_last_hidden_states use_cache router_layers no_rope_layers no_rope_layer_interval
    max_source_positions hc_count n_input_layers n_output_layers n_recurrent_layers ple_layer_ids cca_time0 cca_time1 mem_len
    local_layer_ids num_global_tokens patch_in_forward num_prompt_tokens prompt_length hash_seed num_hashes
    attention_types"""
)
FLOATS = ("factor", "ratio", "expand", "width", "multiplier")  # the few sizes that classes declare as fractions
# Classes that no file names at its top, reached through a parent's nested object.
TEXT_LIKE = words(
    """text_config decoder generator decoder_config thinker_config talker_config code_predictor_config vlm_config dit_config
    depth_decoder_config global_config patcher_config encoder_config semantic_config coarse_acoustics_config"""
)
HEAD = '''"""What a missing key of config.json means, one row a model type: the defaults that transformers' classes declare.

Written by ``tests/tools/generate_class_defaults.py`` from transformers {version}; don't edit. Only keys that can change a
cache's size are kept. None is a declared null: the class knows the key and derives its value from others.

CLASS_DEFAULTS   model type -> key (the class's own spelling) -> declared default
ATTRIBUTE_MAP    model type -> common name -> the class's own key (gpt2: num_hidden_layers -> n_layer)
TEXT_CONFIGS     model type -> (key of the nested text decoder, its model type when the file names none)
TEXT_FIXED       parents whose nested class is fixed: a model_type inside the nested object is not read
TEXT_INIT        parent -> what the nested object holds when the file leaves it out or null (an empty one has the class's own)
OLDER_DEFAULTS   model type -> key -> default, where transformers {older} declared another
OLDER_TYPES      those of these model types that a file may name at its top for transformers {older}
KINDS_BY_CLASS   model types whose class names its layers' kinds; the cache of every other reads them off sliding_window
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvcalc.architectures.rows import Rows

RELEASE = "{version}"
OLDER_RELEASE = "{older}"
'''


def wanted(name: str, value: object) -> bool:
    """Whether ``name`` can change a cache's size, and its default is something to write down."""
    if name in ALWAYS:
        return not isinstance(value, float)
    parts = set(re.split(r"[_\d]+", name.lower())) | ({"hidden_size"} if "hidden_size" in name else set())
    if parts & DROP or not parts & KEEP:
        return False
    if isinstance(value, float):
        return any(word in name for word in FLOATS)
    return literal(value)


def literal(value: object) -> bool:
    """Whether it can stand in a file of pure data."""
    if isinstance(value, list | tuple):
        return len(value) <= 128 and all(literal(item) for item in value)
    return value is None or isinstance(value, bool | int | str | float)


def plain(value: object) -> object:
    """JSON's types only, so that both releases compare alike."""
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def declared(cls: Any) -> dict[str, object]:
    """name -> declared default of a config class: dataclass fields (5.x) or the signatures of its __init__s (4.x)."""
    found: dict[str, object] = dict(popped(cls))
    if dataclasses.is_dataclass(cls):
        for field in dataclasses.fields(cls):
            if field.default is not dataclasses.MISSING:
                found[field.name] = field.default
            elif field.default_factory is not dataclasses.MISSING:
                found[field.name] = field.default_factory()
        return found
    for base in reversed(cls.__mro__):
        if "__init__" in base.__dict__ and base.__module__.startswith("transformers.models"):
            for parameter in inspect.signature(base.__init__).parameters.values():
                if parameter.default is not inspect.Parameter.empty:
                    found[parameter.name] = parameter.default
    return found


def popped(cls: Any) -> Iterator[tuple[str, object]]:
    """Keys that a class reads besides its fields: ``kwargs.pop("global_head_dim", 512)``, with their literal defaults."""
    for base in reversed(cls.__mro__):
        function = base.__dict__.get("__post_init__", base.__dict__.get("__init__"))
        if function is None or not base.__module__.startswith("transformers.models"):
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        except (OSError, TypeError):  # written by dataclass itself
            continue
        yield from (found for node in ast.walk(tree) if (found := popped_key(node)))


def popped_key(node: ast.AST) -> tuple[str, object] | None:
    """(key, default) of one ``kwargs.pop`` or ``kwargs.get`` with literal arguments."""
    match node:
        case ast.Call(ast.Attribute(ast.Name("kwargs"), "pop" | "get"), [ast.Constant(str(key)), *rest]):
            try:
                return key, ast.literal_eval(rest[0]) if rest else None
            except ValueError:
                return None  # an expression of other keys: derived, so the rules' business
    return None


def row_of(cls: Any) -> dict[str, object]:
    """The kept part of a class's defaults."""
    return {
        name: plain(value) for name, value in sorted(declared(cls).items()) if wanted(name, value) and not common(name, value)
    }


def common(name: str, value: object) -> bool:
    """What every class inherits and says nothing."""
    return name in ("architectures", "transformers_version", "chunk_size_feed_forward", "dtype", "torch_dtype") or (
        name in ("is_encoder_decoder", "use_cache") and value in (False, None)
    )


def config_classes() -> dict[str, Any]:
    """model type -> config class: all that can generate, and what they nest."""
    auto: Any = import_module("transformers.models.auto")
    mapping = auto.configuration_auto.CONFIG_MAPPING
    names = {name for table in MAPPINGS for name in getattr(auto.modeling_auto, table, {})}
    classes: dict[str, Any] = {}
    for name in auto.configuration_auto.CONFIG_MAPPING_NAMES:
        cls = mapping[name]
        if name in names:
            classes[name] = cls
            classes.update(nested_classes(cls, mapping))
    return dict(sorted(classes.items()))


def nested_classes(cls: Any, mapping: Any) -> Iterator[tuple[str, Any]]:
    """The text-like classes under one, at any depth."""
    for key, (_, model_type, nested, _) in nested_of(cls, mapping).items():
        if key in TEXT_LIKE:
            yield model_type, nested
            yield from nested_classes(nested, mapping)


def nested_of(cls: Any, mapping: Any) -> dict[str, tuple[str, str, Any, dict[str, object]]]:
    """key -> (key, default model type, class, what it holds when it is left out)."""
    found = {}
    for key, spec in getattr(cls, "sub_configs_defaults", {}).items():
        model_type = spec.model_type
        nested = (
            spec.config_class if isinstance(spec.config_class, type) and hasattr(spec.config_class, "attribute_map") else None
        )
        nested = mapping[model_type] if nested is None and model_type in mapping else nested
        if nested is not None and model_type:
            found[key] = (key, model_type, nested, dict(spec.init_kwargs))
    if not found:  # 4.x: classes alone, and AutoConfig where the default stands in code
        for key, nested in getattr(cls, "sub_configs", {}).items():
            if getattr(nested, "model_type", ""):
                found[key] = (key, nested.model_type, nested, {})
    return found


def text_keys(cls: Any) -> tuple[str, ...]:
    """Where ``get_text_config(decoder=True)`` looks, by the class's default instance where it overrides the method."""
    if "get_text_config" in cls.__dict__:
        return ("decoder_config", "thinker_config", "text_config", "decoder")
    return ("decoder", "generator", "text_config")


def collect() -> dict[str, Any]:
    """Every table of this release."""
    transformers: Any = import_module("transformers")
    mapping = import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING
    transformers.logging.set_verbosity_error()
    tables: dict[str, Any] = {"release": transformers.__version__, "defaults": {}, "map": {}, "text": {}, "fixed": [], "init": {}}
    tables["types"] = sorted(import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING_NAMES)
    tables["kinds"] = [name for name, cls in config_classes().items() if names_kinds(cls)]
    for name, cls in config_classes().items():
        tables["defaults"][name] = row_of(cls)
        if cls.attribute_map:
            tables["map"][name] = {key: own for key, own in sorted(cls.attribute_map.items()) if not set(key.split("_")) & DROP}
        nested = nested_of(cls, mapping)
        key = next((key for key in text_keys(cls) if key in nested), None)
        if key:
            add_text(tables, name, cls, nested[key])
    return tables


def names_kinds(cls: Any) -> bool:
    """Whether a config of this class says what kind each layer is, without being told."""
    if any(isinstance(getattr(cls, name, None), property) for name in ("layer_types", "layers_block_type")):
        return True
    try:
        return getattr(cls(), "layer_types", None) is not None
    except Exception:  # noqa: BLE001 - whatever a class wants to be told before it can be made
        return "layer_types" in declared(cls)


def add_text(tables: dict[str, Any], name: str, cls: Any, nested: tuple[str, str, Any, dict[str, object]]) -> None:
    """One parent's nested decoder."""
    key, model_type, nested_cls, init = nested
    tables["text"][name] = [key, model_type]
    specs = getattr(cls, "sub_configs_defaults", None) or {}
    if key in specs and getattr(specs[key].config_class, "__name__", "") != "AutoConfig":
        tables["fixed"].append(name)
    kept = {item: plain(value) for item, value in sorted(init.items()) if wanted(item, value)}
    if kept:
        tables["init"][name] = kept
    tables["defaults"].setdefault(model_type, row_of(nested_cls))


def differing(newer: dict[str, Any], older: dict[str, Any]) -> dict[str, dict[str, object]]:
    """Rows of ``older`` reduced to keys that both declare, with another value."""
    rows = {}
    for name, row in older.items():
        now = newer.get(name, {})
        changed = {key: value for key, value in row.items() if key in now and now[key] != value}
        if changed:
            rows[name] = changed
    return rows


def standing() -> tuple[str, dict[str, Any], list[str]]:
    """The older release, its rows and its types as the file has them."""
    names: dict[str, Any] = {}
    if TARGET.exists():
        sys.path.insert(0, str(ROOT))
        exec(compile(TARGET.read_text(), str(TARGET), "exec"), names)  # pure data, and possibly half of a package
    return names.get("OLDER_RELEASE", ""), names.get("OLDER_DEFAULTS", {}), sorted(names.get("OLDER_TYPES", ()))


def render(tables: dict[str, Any], older: tuple[str, dict[str, Any], list[str]]) -> str:
    """The module's text."""
    parts = [HEAD.format(version=tables["release"], older=older[0])]
    parts.append(rows("CLASS_DEFAULTS", tables["defaults"]))
    parts.append(rows("ATTRIBUTE_MAP", tables["map"]))
    text = {name: tuple(pair) for name, pair in tables["text"].items()}
    parts.append(table("TEXT_CONFIGS", "dict[str, tuple[str, str]]", text))
    parts.append(f"TEXT_FIXED: frozenset[str] = frozenset({sorted(tables['fixed'])!r})\n")
    parts.append(rows("TEXT_INIT", tables["init"]))
    parts.append(rows("OLDER_DEFAULTS", older[1]))
    parts.append(words_of("OLDER_TYPES", older[2]))
    parts.append(words_of("KINDS_BY_CLASS", tables["kinds"]))
    keys = sorted({key for row in tables["defaults"].values() for key in row})
    parts.append(f"# Every key of CLASS_DEFAULTS' rows.\nDECLARED_KEYS: frozenset[str] = frozenset({' '.join(keys)!r}.split())\n")
    return formatted("\n".join(parts))


def words_of(name: str, found: list[str]) -> str:
    """A set of names, as words."""
    return f"{name}: frozenset[str] = frozenset({' '.join(sorted(found))!r}.split())\n"


def rows(name: str, found: dict[str, Any]) -> str:
    """One table of JSON rows, a row a line: parsed only when read, so that importing it costs nothing."""
    body = "".join(f"    {key!r}: {json.dumps(value, sort_keys=True)!r},\n" for key, value in sorted(found.items()))
    return f"{name}: Mapping[str, Mapping[str, Any]] = Rows({{\n{body}}})\n"


def table(name: str, annotation: str, rows: dict[str, Any]) -> str:
    """One literal table, a row a line."""
    body = "".join(f"    {key!r}: {value!r},\n" for key, value in sorted(rows.items()))
    return f"{name}: {annotation} = {{\n{body}}}\n"


def formatted(text: str) -> str:
    """In the project's own layout, so that lint and the check agree."""
    command = [sys.executable, "-m", "ruff", "format", "--config", str(ROOT / "pyproject.toml"), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def main() -> int:
    """Write, check or dump."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--dump", type=Path)
    parser.add_argument("--older", type=Path)
    args = parser.parse_args()
    tables = collect()
    if args.dump:
        args.dump.write_text(json.dumps(tables, indent=1))
        return 0
    older = standing()
    if args.older:
        dump = json.loads(args.older.read_text())
        older = (
            dump["release"],
            differing(tables["defaults"], dump["defaults"]),
            sorted(set(dump["types"]) & set(tables["defaults"])),
        )
    text = render(tables, older)
    if args.check:
        return int(TARGET.read_text() != text)
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
