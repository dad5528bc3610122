"""A small etcd client on grpc.aio, the only place that speaks to etcd."""
