"""SGLang's token pools, sized from the memory that is left. Rules: ``sglang/srt`` of the release, read and measured.

The parts: ``options``; ``classes`` (what its code says of each); ``backends`` (which attention backend a class gets, and the
pages that it takes); ``setup`` (what its arguments come to for one model); ``layers`` (what a token, and a request's state, take
in each pool); ``pools`` (how the memory is divided); ``engine`` (the plan); ``registry`` and ``serving`` (what it runs).
"""
