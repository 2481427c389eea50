"""Faults, each a small change to code that a run trusts: what a reader shows to a sceptic. Every one must be caught.

A fault names the layers that it is shown on and puts one thing wrong, as a slip in a real engine would; then the default run,
with its own sizes and controls, must not pass. They stand in ``faults_of_caches`` and ``faults_of_kinds``.
"""

from __future__ import annotations

from verify import faults_of_caches, faults_of_kinds
from verify.fault_tools import FAULTS, Fault

__all__ = ["FAULTS", "Fault", "faults_of_caches", "faults_of_kinds"]
