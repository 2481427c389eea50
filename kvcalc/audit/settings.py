"""Settings of a load: what the command line says, then what the log states, each with where it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kvcalc.core.log_facts import Load
from kvcalc.core.model import Model
from kvcalc.dtypes import ALIASES, DTYPES, Dtype, find_dtype
from kvcalc.engines import ENGINES, find_engine
from kvcalc.errors import DtypeError

DEFAULT_DTYPE = "float16"
TP_NAMES = ("tensor_parallel_size", "tp_size")


@dataclass(frozen=True, slots=True)
class Given:
    """What the command line adds to a log."""

    tp_size: int | None = None
    pp_size: int | None = None
    dtype: Dtype | None = None
    draft: bool = False
    options: tuple[str, ...] = ()
    types: tuple[Dtype, ...] = ()  # element types given by hand: NAME=BYTES/ELEMENTS

    def option(self, name: str) -> str:
        """The value that the command line gives this option, or an empty text."""
        return next((text.partition("=")[2] or "true" for text in self.options if text.partition("=")[0] == name), "")

    def known_to(self, engine: str) -> Given:
        """The same with those options alone that the engine has: a log may be of several."""
        if engine not in ENGINES:
            return replace(self, options=())
        names = {option.name for option in find_engine(engine).options}
        return replace(self, options=tuple(text for text in self.options if text.partition("=")[0] in names))


@dataclass(slots=True)
class Settings:
    """The settings of one load; ``used`` collects those that played a part: name, value, where from."""

    load: Load
    given: Given
    model: Model | None = None
    used: dict[str, tuple[str, str]] = field(default_factory=dict)
    rules: str = ""  # the release whose rules were taken
    notes: list[str] = field(default_factory=list)

    @property
    def tp_size(self) -> int:
        """Tensor-parallel ranks."""
        if self.given.tp_size is not None:
            self.used["tensor parallel ranks"] = (str(self.given.tp_size), "flag --tp")
            return self.given.tp_size
        return self.number(*TP_NAMES) or 1

    @property
    def pp_size(self) -> int:
        """Pipeline-parallel ranks."""
        if self.given.pp_size is not None:
            return self.given.pp_size
        return self.number("pipeline_parallel_size", "pp_size") or 1

    @property
    def draft(self) -> bool:
        """Whether draft layers count."""
        return self.given.draft

    @property
    def page_size(self) -> int:
        """SGLang's tokens a page."""
        return self.number("page_size") or 1

    def text(self, *names: str) -> str:
        """The first of ``names`` that the command line gives as an option, or the log states; or an empty string."""
        for name in names:
            if given := self.given.option(name.replace("_", "-")):
                self.used[name] = (given, f"-o {name.replace('_', '-')}")
                return given
            if name in self.load.settings:
                setting = self.load.settings[name]
                self.used[name] = (setting.value, f"line {setting.line}")
                return setting.value
        return ""

    def number(self, *names: str) -> int | None:
        """The same as a whole number; None where it is none."""
        text = self.text(*names)
        return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None

    def dtype(self, word: str = "") -> Dtype:
        """The cache's type: the command line's, the line's own ``word``, the log's, else the model's."""
        if self.given.dtype is not None:
            return self.given.dtype
        for name in (word, self.text("kv_cache_dtype", "KvCacheType", "kv-cache-type"), self.text("dtype")):
            key = name.removeprefix("torch.").lower()
            if key in DTYPES or key in ALIASES:
                return find_dtype(key)
        own = (self.model.cache_dtype or self.model.dtype) if self.model else None
        return find_dtype(own or DEFAULT_DTYPE)

    def type_of(self, word: str) -> Dtype:
        """The type that a line names. Raises DtypeError with how to name one that isn't known."""
        by_hand = next((each for each in self.given.types if each.name == word.lower()), None)
        if by_hand is not None:
            return by_hand
        try:
            return find_dtype(word)
        except DtypeError as problem:
            fix = f"name it: --dtype {word[:20]}=BYTES/ELEMENTS, as --dtype q8_0=34/32"
            raise DtypeError(f"{problem.what}: {fix}", fix=fix) from None

    def lines(self) -> tuple[tuple[str, str, str], ...]:
        """(name, value, where from) of every setting that was asked for."""
        return tuple((name, value, origin) for name, (value, origin) in self.used.items())


def windows_of(model: Model | None) -> Mapping[int, int]:
    """Layer → window or chunk, where it has one."""
    layers = enumerate(model.layers) if model else ()
    sizes = ((index, getattr(part, "window", None) or getattr(part, "chunk", None)) for index, layer in layers for part in layer)
    return {index: size for index, size in sizes if size}
