"""A whole federation on this machine: etcd, a broker and a few agents as processes on loopback.

For a laptop, a first look, and tests. Nothing here decides or runs jobs: it makes keys and
settings, starts the same programs that serve elsewhere, keeps them running, and takes them down.
Read `federation` first, then `keeping` (supervision) and `teardown`.
"""
