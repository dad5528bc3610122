"""Grid Engine as its clients tell of it: text and XML in, values out."""
