"""A fitted model as plain numbers: boosted trees for each quantile, how to ask them, and the bytes they are kept as.

Nothing that is loaded here can run code: a file is arrays and a header, and its name carries the digest of its bytes. A model id
is the kind of work and the beginning of that digest, so equal data give an equal id on the same release of scikit-learn.
A pure function of its arrays; ``boosting`` makes them. It must never load a file whose bytes are not those it is named after.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from apportion.core.errors import ApportionError

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

VERSION = 1
DIGEST_CHARS = 12
SUFFIX = ".forest"


class ModelBroken(ApportionError):
    """A model's file is not what it is named after, or not one of this release. Delete it, and it is fitted again."""


class Forest(msgspec.Struct, frozen=True):
    """Boosted trees of one quantile. A node goes to ``left`` where its feature is at most its ``threshold``.

    Of a category ``left`` is where the category's bit is set in ``bits``; NaN, and a category that was never met, goes where
    ``missing_left`` says.
    """

    base: float
    begins: I64  # the first node of each tree
    feature: I64
    threshold: F64
    missing_left: NDArray[np.bool_]
    left: I64  # of all trees together; a leaf is its own child
    right: I64
    leaf: NDArray[np.bool_]
    category: NDArray[np.bool_]
    bits: I64  # 64 categories at most
    known: int  # bits of the categories that were fitted
    value: F64

    def predict(self, table: F64) -> F64:
        """Return one number for each row."""
        result = np.full(len(table), self.base)
        rows = np.arange(len(table))
        for begin in self.begins.tolist():
            at = np.full(len(table), begin, dtype=np.int64)
            while not self.leaf[at].all():
                value = table[rows, self.feature[at]]
                unknown = np.isnan(value)
                goes_left = value <= self.threshold[at]
                if (chosen := self.category[at]).any():
                    number = np.clip(np.where(unknown, 0, value), 0, 63).astype(np.int64)
                    goes_left = np.where(chosen, (self.bits[at] >> number) & 1 == 1, goes_left)
                    unknown |= chosen & ((self.known >> number) & 1 == 0)
                goes_left = np.where(unknown, self.missing_left[at], goes_left)
                at = np.where(self.leaf[at], at, np.where(goes_left, self.left[at], self.right[at]))
            result += self.value[at]
        return result


class Model(msgspec.Struct, frozen=True):
    """What is kept of a fit: trees by quantile, what each is shifted by, and of what they were made."""

    kind: str
    as_of_ms: int  # of the newest end it has learned from
    rows: int
    features: tuple[str, ...]
    quantiles_ppm: tuple[int, ...]
    shifts: tuple[float, ...]  # logarithms, by quantile
    forests: tuple[Forest, ...]

    def logarithms(self, table: F64) -> F64:
        """Return rows by quantiles. They ascend: what trees that know nothing of each other leave crossed is put in order.

        Sorting never makes a quantile worse (Chernozhukov, Fernandez-Val and Galichon, "Quantile and Probability Curves Without
        Crossing", Econometrica 2010).
        """
        columns = [forest.predict(table) + shift for forest, shift in zip(self.forests, self.shifts, strict=True)]
        return np.sort(np.stack(columns, axis=1), axis=1)

    @property
    def model_id(self) -> str:
        """The name that forecasts carry."""
        return f"{self.kind}-runtime-{digest(encoded(self))}"


def digest(body: bytes) -> str:
    """Return the beginning of the digest."""
    return hashlib.sha256(body).hexdigest()[:DIGEST_CHARS]


def encoded(model: Model) -> bytes:
    """Return the bytes a model is kept as: the same for the same numbers."""
    return msgspec.msgpack.encode({"version": VERSION, "model": model}, enc_hook=_out)


def decoded(body: bytes) -> Model:
    """Return the model of these bytes. Raises ``ModelBroken``."""
    try:
        document = msgspec.msgpack.decode(body)
        if document.get("version") != VERSION:
            raise ModelBroken(f"a model of version {document.get('version')!r}, this release has {VERSION}")
        return msgspec.convert(document["model"], Model, dec_hook=_in)
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelBroken(f"not a model: {error}") from None


def save(model: Model, folder: Path) -> Path:
    """Write the model's file, unless it is there, and return its path. Whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    body = encoded(model)
    # the newest comes last in order of names
    path = folder / f"{model.kind}-runtime-{model.as_of_ms:015d}-{digest(body)}{SUFFIX}"
    if not path.is_file():
        new = path.with_suffix(".new")
        new.write_bytes(body)
        new.replace(path)
    return path


def load(path: Path) -> Model:
    """Return the model in a file. Raises ``ModelBroken``, with the path, when the bytes are not those it is named after."""
    body = path.read_bytes()
    if not path.stem.endswith(f"-{digest(body)}"):
        raise ModelBroken(f"{path}: its bytes have digest {digest(body)}, not that of its name; it is left aside")
    try:
        return decoded(body)
    except ModelBroken as error:
        raise ModelBroken(f"{path}: {error}; it is left aside") from None


def _out(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [value.dtype.str, list(value.shape), np.ascontiguousarray(value).tobytes()]
    raise NotImplementedError(f"{type(value).__name__} is no part of a model")


def _in(kind: type, value: Any) -> Any:
    name, shape, body = value
    if name not in ("<f8", "<i8", "|b1"):
        raise ValueError(f"an array of {name!r} is no part of a model")
    return np.frombuffer(body, dtype=np.dtype(name)).reshape(shape)
