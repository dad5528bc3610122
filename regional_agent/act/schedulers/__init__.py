"""Local schedulers behind one port; `process` runs jobs on this host."""
