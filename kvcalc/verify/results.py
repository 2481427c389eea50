"""What verify was asked, and what it found. No torch here, so that the command line can name it cheaply."""

from __future__ import annotations

from dataclasses import dataclass, field

FULL = "outputs against full attention"


@dataclass(frozen=True, slots=True)
class Settings:
    """How to run. ``None`` and 0 mean: chosen by verify, and said in the report."""

    device: str = "auto"
    cache: tuple[str, ...] = ("all",)
    prompt: int | None = None  # tokens that are prefilled
    chunks: tuple[int, ...] = (1, 1, 4)  # new tokens a step, in turn
    layers: int | None = None  # of each kind; None is all where memory allows
    seed: int = 0
    controls: bool = True
    capacity: int | None = None
    block_size: int = 16


@dataclass(frozen=True, slots=True)
class Measure:
    """One comparison: the output nearest to its tolerance, and how many were checked."""

    what: str
    error: float = 0.0
    tolerance: float = 0.0
    outputs: int = 0

    @property
    def passed(self) -> bool:
        """Whether every output was within its tolerance; NaN is not."""
        return self.error <= self.tolerance

    @property
    def ratio(self) -> float:
        """The error as a share of its tolerance; infinite beyond it."""
        if not self.passed:
            return float("inf")
        return self.error / self.tolerance if self.tolerance else 0.0


@dataclass(frozen=True, slots=True)
class Check:
    """One layer kind under one implementation."""

    kind: str
    shape: str  # the layer's sizes, for people
    implementation: str
    engine: str
    k_dtype: str
    v_dtype: str
    layers: int  # layers of this kind that were run
    layers_in_model: int
    measures: tuple[Measure, ...]
    measured_bytes: int
    predicted_bytes: int
    note: str = ""
    not_run: str = ""  # what of the layer nothing was computed from, and why

    @property
    def outputs(self) -> int:
        """How many outputs were held against something."""
        return sum(measure.outputs for measure in self.measures)

    @property
    def shown(self) -> Measure:
        """The comparison that stands for the check: one that failed, else that of the outputs."""
        failed = (measure for measure in self.measures if not measure.passed)
        outputs = (measure for measure in self.measures if measure.what.startswith(FULL))
        return next(failed, next(outputs, self.measures[0] if self.measures else Measure("bytes alone")))

    @property
    def passed(self) -> bool:
        """Outputs within tolerance and bytes equal."""
        return all(measure.passed for measure in self.measures) and self.measured_bytes == self.predicted_bytes


@dataclass(frozen=True, slots=True)
class Weighing:
    """One implementation's bytes over all layers that were run, and what belongs to no layer."""

    implementation: str
    engine: str
    k_dtype: str
    v_dtype: str
    measured_bytes: int
    predicted_bytes: int
    shared_measured: int = 0
    shared_predicted: int = 0
    allocator_before: int | None = None  # CUDA's own figures: shown, not compared
    allocator_after: int | None = None

    @property
    def passed(self) -> bool:
        """Equal to the byte."""
        return self.measured_bytes == self.predicted_bytes and self.shared_measured == self.shared_predicted


@dataclass(frozen=True, slots=True)
class Control:
    """A cache broken on purpose, run through the same steps and comparisons as the sound one just before it."""

    name: str
    kind: str
    implementation: str
    what: str  # what was broken, and where
    error: float
    tolerance: float
    found_by: str = ""  # the comparison that failed
    sound: bool = True  # whether the same cache passed unbroken

    @property
    def caught(self) -> bool:
        """Whether the check fails on the broken cache, as it must, and on nothing else."""
        return self.sound and not self.error <= self.tolerance


@dataclass(frozen=True, slots=True)
class AgainstRow:
    """One layer of a library's own cache."""

    layer: int
    kind: str
    measured_bytes: int
    predicted_bytes: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class AgainstReport:
    """A library's own cache against the prediction of its engine."""

    library: str
    version: str
    engine: str
    rows: tuple[AgainstRow, ...] = ()
    measured_bytes: int = 0
    predicted_bytes: int = 0
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Equal in total and in every layer."""
        equal = all(row.measured_bytes == row.predicted_bytes for row in self.rows)
        return equal and self.measured_bytes == self.predicted_bytes


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Everything that one run found."""

    model: str
    source: str
    device: str
    torch_version: str
    compute_dtype: str
    reference_dtype: str
    request: dict[str, object]
    steps: str
    checks: tuple[Check, ...]
    weighings: tuple[Weighing, ...]
    controls: tuple[Control, ...] = ()
    against: tuple[AgainstReport, ...] = ()
    tensor_parallel: tuple[Check, ...] = ()
    tolerance_rules: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Everything equal, every control caught, and something checked at all."""
        if self.checks and not any(check.outputs for check in self.checks):
            return False
        checked = all(check.passed for check in (*self.checks, *self.tensor_parallel))
        weighed = all(found.passed for found in self.weighings) and all(found.passed for found in self.against)
        return checked and weighed and all(control.caught for control in self.controls)
