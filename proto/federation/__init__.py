"""The contract between broker and agents: vocabulary, pure state machines, wire and etcd doors.

Pure modules here know no clock, dice or I/O; `federation.wire` is the one door to the generated
protobuf code, `federation.etcd` the one door to etcd, `federation.system` holds the real clock and
dice and is imported by app modules alone. Read `ids.py` and `jobs.py` first.
"""
