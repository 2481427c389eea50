"""vLLM's releases, and what changed in each as far as the cache goes."""

from __future__ import annotations

from kvcalc.engines.releases import Change, Releases

CHANGES: tuple[Change, ...] = ()
RELEASES = Releases("vLLM", ("0.32.0",), CHANGES)
