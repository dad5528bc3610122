"""What a running federation is measured with: a stage, load from processes of its own, stub sites.

Every figure stands beside a floor of the same run, so that a slow machine does not look like a
slow broker: plain puts into the same etcd by the same client class, bare starts of a process.
"""
