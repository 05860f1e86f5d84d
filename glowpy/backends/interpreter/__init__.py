"""The interpreter: executes IR instructions with numpy over one arena. Slow, complete, and the reference meaning of every instruction."""
