"""What an engine is, and what it makes of one request.

An ``Engine`` names itself, its options and its releases, says which models a release serves, and makes a ``Plan`` of a model
and a request. The plan is built once; it is then asked for totals at many lengths and batches, for what must be free, and
for what the engine refuses. A new engine implements ``plan_under`` and whatever of the plan differs from the defaults here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import ClassVar, final

from kvcalc.core.model import Model, OptionValue, Request, Tally
from kvcalc.engines.options import Option, parse_options
from kvcalc.engines.releases import Releases, Rules
from kvcalc.engines.requests import require_layers
from kvcalc.errors import EngineError, UsageError
from kvcalc.values import value

Figure = Callable[[int, int], int]  # (batch_size, tokens) → bytes


@value
class Serving:
    """Whether a release runs a model: served, refused for a reason, or unchecked for want of a rule."""

    refused: str = ""  # why not
    unchecked: str = ""  # what is not known of it
    where: str = ""  # the file of the engine that says so
    fix: str = "--engine exact counts it"


SERVED = Serving()


@value
class Memory:
    """How an engine divides a device, and which of its options say so themselves."""

    share: str = "1"  # of a whole card, unless told otherwise
    share_origin: str = ""  # the rule that says so
    share_of_rest: bool = False  # that share is taken of what the weights leave, not of the whole
    named_by: tuple[str, ...] = ()  # options that name the memory
    capped_by: tuple[str, ...] = ()  # options that bound the pool, whatever the memory
    levers: tuple[tuple[str, OptionValue], ...] = ()  # options that may free memory


class Plan(ABC):
    """One model and request under one release's rules. ``allocate`` is pure; everything else has a default."""

    serving: Serving = SERVED

    def __init__(self, engine: Engine, model: Model, request: Request, rules: Rules) -> None:
        self.engine, self.model, self.request, self.rules = engine, model, request, rules

    @abstractmethod
    def allocate(self) -> Tally:
        """Everything that the engine holds for the request. Raises EngineError, UsageError, ConfigError, DtypeError."""

    @cached_property
    def tally(self) -> Tally:
        """The same, counted once, with what the rules themselves have to say."""
        found = self._of_all_copies(self.allocate())
        said = [text for text in (self.rules.warning, self.serving.unchecked) if text]
        return replace(found, warnings=(*said, *found.warnings)) if said else found

    def _of_all_copies(self, found: Tally) -> Tally:
        """The same with the sequences that were asked for: an engine counts the share of one data-parallel copy."""
        request = self.request
        if request.dp_size == 1 or "batch_size" not in found.request:
            return found
        batch = (len(request.lengths) or request.batch_size, request.origins.get("batch_size", "default"))
        return replace(found, request={**found.request, "batch_size": batch})

    def resized(self, request: Request) -> Plan:
        """The plan of the same request with other sequences. A plan that shares its preparation overrides this."""
        return self.engine.plan(self.model, request)

    @final
    def at(self, batch_size: int, tokens: int) -> Plan:
        """The plan for so many sequences of one length."""
        return self.resized(replace(self.request, batch_size=batch_size, tokens=tokens, lengths=()))

    @cached_property
    def total(self) -> Figure:
        """(batch_size, tokens) → bytes held."""
        return lambda batch_size, tokens: self.at(batch_size, tokens).tally.total_bytes

    @cached_property
    def need(self) -> Figure:
        """(batch_size, tokens) → bytes that must be free: what is held, and what the engine insists on besides.

        An option that caps the pool plays no part: ``over_cap`` says what it refuses.
        """
        plan = self.uncapped
        return lambda batch_size, tokens: plan.at(batch_size, tokens).must_be_free

    @property
    def must_be_free(self) -> int:
        """Bytes that must be free for the request itself."""
        return max(self.tally.total_bytes, self.tally.held_bytes or 0)

    @cached_property
    def uncapped(self) -> Plan:
        """The plan without the options that cap the pool."""
        caps = self.engine.memory.capped_by
        kept = {name: given for name, given in self.request.options.items() if name not in caps}
        if len(kept) == len(self.request.options):
            return self
        return self.engine.plan(self.model, replace(self.request, options=kept))

    @property
    def step(self) -> int:
        """The smallest length by which the figure can grow."""
        return 1

    def longer(self, tokens: int) -> Plan:
        """The same request, each sequence so many tokens longer."""
        taken = self.tally.request["tokens"][0]
        return self.resized(self.request.at((taken if isinstance(taken, int) else 0) + tokens))

    @property
    def dip(self) -> int:
        """The longest run of lengths over which the figure may shrink, or a length be refused that a longer one is not."""
        return 1

    @property
    def breaks(self) -> tuple[int, ...]:
        """Lengths from which on another rule holds, under which less is taken."""
        return ()

    @property
    def held_back(self) -> int:
        """Bytes that no sequence gets."""
        return 0

    @property
    def ranks(self) -> int | None:
        """Ranks that share the weights; None where the engine counts no ranks, and takes one device."""
        return None

    @property
    def over_cap(self) -> str:
        """Why a capped pool does not hold the request at once; nothing where it does, or where nothing is capped."""
        return ""

    @property
    def at_once(self) -> tuple[int, str] | None:
        """Sequences that run at once, and the option that says so; None where all do."""
        return None


class Counted(Plan):
    """A plan with a short cut: a function of batch and tokens gives the bytes that are held, and must be free."""

    @abstractmethod
    def counter(self) -> Figure:
        """(batch_size, tokens) → bytes."""

    @cached_property
    def total(self) -> Figure:
        """The short cut."""
        return self.counter()

    @cached_property
    def need(self) -> Figure:
        """The same figure, unless an option caps the pool."""
        return self.total if self.uncapped is self else self.uncapped.need


class Engine(ABC):
    """Whose allocation rules apply."""

    name: ClassVar[str]
    source: ClassVar[str]  # where its rules were read
    evidence: ClassVar[str]  # measured, or read only
    releases: ClassVar[Releases]
    own_options: ClassVar[tuple[Option, ...]] = ()
    memory: ClassVar[Memory] = Memory()
    sequences_option: ClassVar[str] = ""  # the option that fixes how many sequences there are
    reads_file: ClassVar[bool] = False  # works from the file's own keys, not from the model's layers
    excluded: ClassVar[tuple[str, ...]] = ("weights", "activations and workspace", "allocator padding and fragmentation")

    @abstractmethod
    def serves(self, model: Model, rules: Rules) -> Serving:
        """Whether this release has a class for the model."""

    @abstractmethod
    def plan_under(self, rules: Rules, model: Model, request: Request) -> Plan:
        """The plan of a request, under one release's rules, for a model that it serves. Raises what ``Plan.allocate`` does."""

    @final
    def plan(self, model: Model, request: Request) -> Plan:
        """The plan of a request. Raises EngineError for a model that the release does not serve, or a release not known."""
        if not self.reads_file:
            require_layers(model)
        asked = request.options.get("release")
        rules = self.releases.find(None if asked is None else str(asked))
        serving = self.serves(model, rules)
        if serving.refused:
            raise EngineError(serving.refused, serving.where, serving.fix)
        plan = self.plan_under(rules, model, request)
        plan.serving = serving
        return plan

    @final
    def allocate(self, model: Model, request: Request) -> Tally:
        """What is held for a request: the tally of its plan."""
        return self.plan(model, request).tally

    def share(self, options: Mapping[str, OptionValue]) -> tuple[str, str]:
        """The share of a whole card that it takes unless told otherwise, and the rule that says so."""
        del options
        return self.memory.share, self.memory.share_origin

    def on_card(self, memory: int, name: str) -> Mapping[str, OptionValue]:
        """Options that a card of so many bytes decides where they are unsaid."""
        del memory, name
        return {}

    @property
    def version(self) -> str:
        """The newest release whose rules are known: the default."""
        return self.releases.newest

    @cached_property
    def options(self) -> tuple[Option, ...]:
        """Its own options, and the release where there are several."""
        if not self.releases.versioned or any(option.name == "release" for option in self.own_options):
            return self.own_options
        return (*self.own_options, Option("release", "text", "the release whose rules apply", self.releases.newest))

    def with_sequences(self, request: Request) -> Request:
        """The request with as many sequences as an option of the engine's own fixes. Raises UsageError for another number."""
        fixed = request.options.get(self.sequences_option)
        if not isinstance(fixed, int) or request.lengths:
            return request
        said = request.origins.get("batch_size", "default")
        if not said.startswith("default") and request.batch_size != fixed:
            raise UsageError(
                f"{request.batch_size:,} sequences are asked for, and -o {self.sequences_option}={fixed} says otherwise",
                fix=f"give the number once, by --batch or by -o {self.sequences_option}",
            )
        origins = {**request.origins, "batch_size": f"-o {self.sequences_option}"}
        return replace(request, batch_size=fixed, origins=origins)

    def parse_options(self, texts: list[str]) -> dict[str, OptionValue]:
        """``["block-size=32", "kv-unified"]`` → values by option name. Raises UsageError."""
        return parse_options(self.name, self.options, texts)
