"""Generated protobuf code of the contract and its sources. Only `federation.wire` imports it."""
