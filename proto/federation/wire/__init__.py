"""The one door to the generated protobuf code: messages, method paths and frame codecs.

`records` holds what lies in etcd, `session` what passes between broker and agent. Everything above
this package works on values of its own and meets protobuf only in codecs.
"""

from federation.v1 import records_pb2 as records
from federation.v1 import session_pb2 as session

SESSION_METHOD = "/tradewind.v1.Federation/Session"
LOGS_METHOD = "/tradewind.v1.Federation/Logs"

__all__ = ["LOGS_METHOD", "SESSION_METHOD", "records", "session"]
