"""The kernel library, written in NKI. Functions on tiles, which the compiler calls, and whole kernels for direct use."""
