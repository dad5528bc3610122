"""The one door to the generated protobuf messages: encodes and decodes frames and records."""
