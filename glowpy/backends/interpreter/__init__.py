"""The interpreter: executes IR with numpy over one arena. The reference meaning of every instruction."""
