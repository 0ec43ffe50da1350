"""Compression: the tri-Haar coefficients that matter, in few bytes on disk, any head of them without the rest."""

from pyattnorg.compression.api import compress
from pyattnorg.compression.compressed import Compressed

__all__ = ["Compressed", "compress"]
