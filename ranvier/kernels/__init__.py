"""Kernels written in NKI: functions on tiles, which the compiler calls, and whole kernels made of them in `library`."""
