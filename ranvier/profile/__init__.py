"""Where the time of a program goes: measures, bounds, critical path; reports, an offline viewer, trace files."""

from __future__ import annotations

from ranvier.profile.build import profile_program
from ranvier.profile.metrics import Profile

__all__ = ["Profile", "profile_program"]
