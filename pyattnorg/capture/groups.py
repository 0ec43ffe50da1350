"""Which records make one tensor together: by stack, by kind of attention, by shape; and what each group is called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pyattnorg.capture.record import Place, Record

_TOWERS = {
    "text": ("text", "language"),
    "vision": ("vision", "visual", "image", "pixel"),
    "audio": ("audio", "speech"),
}
_PLAIN = {"layers", "layer", "blocks", "block", "h", "model", "module", "transformer"}


@dataclass
class Bucket:
    """Records that fit one tensor, and who they are."""

    prefix: str | None
    suffix: str
    cross: bool
    records: list[Record] = field(default_factory=list)

    @property
    def layers(self) -> set[int]:
        """Layer numbers in it."""
        return {r.layer for r in self.records}

    @property
    def shape(self) -> tuple[int, int]:
        """(queries, keys) of its maps."""
        return self.records[0].shape[1], self.records[0].shape[2]

    @property
    def stage(self) -> str:
        """The stage that all of its layers are of, if they are."""
        stages = {r.place.stage for r in self.records}
        return "" if len(stages) > 1 or None in stages else str(stages.pop())

    @property
    def windows(self) -> int:
        """Windows of its layers, 0 where there are none."""
        return self.records[0].windows


def group(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Records by group, named; a model with one kind of attention has the one group ``""``."""
    buckets: list[Bucket] = []
    for record in records:
        prefix, suffix, cross = record.place.series
        fitting = [b for b in buckets if (b.prefix, b.suffix, b.cross) == (prefix, suffix, cross)]
        same_shape = [b for b in fitting if (*b.shape, b.windows) == (*record.shape[1:], record.windows)]
        if same_shape:
            same_shape[0].records.append(record)
        else:
            buckets.append(Bucket(prefix, suffix, cross, [record]))
    buckets = _merged(buckets)
    names = [""] if len(buckets) == 1 else _names(buckets)
    out = {}
    for name, bucket in zip(names, buckets, strict=True):
        # by layer, and in the order of calls within one: sorting is stable
        out[name] = sorted(bucket.records, key=lambda r: r.layer)
    return out


def _merged(buckets: list[Bucket]) -> list[Bucket]:
    """Alternating kinds of layers (local and global, say) in one stack are one group where shapes allow it."""
    out: list[Bucket] = []
    for bucket in buckets:
        for other in out:
            alike = all(getattr(other, a) == getattr(bucket, a) for a in ("prefix", "cross", "shape", "windows"))
            if alike and bucket.prefix is not None and not other.layers & bucket.layers:
                other.records.extend(bucket.records)
                break
        else:
            out.append(bucket)
    return out


def tower(path: str) -> str:
    """``text``, ``vision`` or ``audio`` where a path says so."""
    words = path.lower()
    return next((name for name, hints in _TOWERS.items() if any(hint in words for hint in hints)), "")


def side(path: str) -> str:
    """``encoder`` or ``decoder`` where a path says so; the innermost word counts."""
    found = [part for part in path.lower().split(".") if "encoder" in part or "decoder" in part]
    return "" if not found else "decoder" if "decoder" in found[-1] else "encoder"


def base_name(place: Place) -> str:
    """What a group of records from this place is called, as long as nothing else is called so."""
    path = place.prefix if place.prefix is not None else place.module
    words = [part for part in path.split(".") if part and part not in _PLAIN and not part.isdigit()]
    return tower(path) or side(path) or ".".join(words) or path or "attention"


def _names(buckets: list[Bucket]) -> list[str]:
    crosses = sum(b.cross for b in buckets)

    def plain(bucket: Bucket) -> str:
        base = base_name(bucket.records[0].place)
        if bucket.cross:
            return "cross" if crosses == 1 else f"{base}.cross"
        return base

    names = [plain(b) for b in buckets]
    finer: list[Callable[[Bucket], str]] = [
        lambda b: b.prefix or "",
        lambda b: b.stage,
        lambda b: f"{b.shape[0]}x{b.shape[1]}",
        lambda b: f"in {b.windows}" if b.windows else "",
        lambda b: b.suffix,
    ]
    for tell in finer:
        for name in {name for name in names if names.count(name) > 1}:
            alike = [i for i, other in enumerate(names) if other == name]
            told = [tell(buckets[i]) for i in alike]
            if len(set(told)) > 1:
                for i, more in zip(alike, told, strict=True):
                    names[i] = f"{name} {more}".strip()
    return [name if names.count(name) == 1 else f"{name} ({i})" for i, name in enumerate(names)]


__all__ = ["Bucket", "base_name", "group", "side", "tower"]
