"""Records in etcd: store port, keys, codecs, repository, projection."""
