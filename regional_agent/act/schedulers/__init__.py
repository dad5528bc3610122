"""Local schedulers behind one port: start with `port.py`. `process` runs jobs on this host."""
