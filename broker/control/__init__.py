"""The shell: the cycle, the plan applier, the interpreter, leadership."""
