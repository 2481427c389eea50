"""SGLang's releases whose rules are known, and what each brought."""

from __future__ import annotations

from kvcalc.engines.releases import Releases

RELEASES = Releases("SGLang", ("0.5.23",))
