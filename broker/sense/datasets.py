"""The datasets as records, and as the values decisions are made with."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from broker.model.data import Dataset
from broker.state import keys
from broker.state.projection import Projection
from federation.wire import records as pb

SCHEMA = 1


def dataset_from(record: pb.DatasetRecord) -> Dataset:
    """A record as a value."""
    return Dataset(
        record.dataset,
        record.bytes,
        tuple(record.regions),
        tuple(record.residency),
        record.changed_ms,
        record.subject,
    )


def encode_dataset(dataset: Dataset) -> bytes:
    """A dataset as its record."""
    return pb.DatasetRecord(
        schema=SCHEMA,
        dataset=dataset.name,
        bytes=dataset.size_bytes,
        regions=dataset.regions,
        residency=dataset.residency,
        changed_ms=dataset.changed_ms,
        subject=dataset.subject,
    ).SerializeToString()


def read_datasets(projection: Projection) -> dict[str, Dataset]:
    """Every dataset by name. A record this version cannot read is left out: nothing is placed by
    what is not known."""
    found: dict[str, Dataset] = {}
    for kv in projection.under(keys.DATASETS):
        try:
            dataset = dataset_from(pb.DatasetRecord.FromString(kv.value))
        except DecodeError:
            continue
        found[dataset.name] = dataset
    return found
