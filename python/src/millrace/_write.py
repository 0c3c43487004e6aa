# SPDX-License-Identifier: Apache-2.0
"""Writes shards of records."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from . import _fast
from ._dataset import Dataset
from ._errors import InvalidArgument, check, text_of
from ._ffi import ffi, lib
from ._iterator import Engine, Options, _address, _close_soon
from ._python import from_generator, runs_python, spec_of_result
from ._types import Spec, TensorSpec, as_spec
from ._worker import Mismatch

FORMATS = ("tfrecord", "jsonl", "npy", "arrow", "parquet")
COMPRESSIONS = ("GZIP", "ZLIB", "ZSTD", "zstd-record")


@dataclass(frozen=True)
class Written:
    """What `mr.write` has written; it prints as `millrace write` does.

    Attributes:
        records: their number.
        files: the paths, in order.
        pattern: matches all of the files: for `mr.tfrecord` and the like.
    """

    records: int
    files: tuple[str, ...]
    pattern: str

    def __str__(self) -> str:
        records = "record" if self.records == 1 else "records"
        files = "file" if len(self.files) == 1 else "files"
        return f"{self.records} {records} in {len(self.files)} {files}: {self.pattern}"


def write(
    ds_or_iterable: Dataset | Iterable[Any],
    prefix: str | os.PathLike[str],
    format: Literal["tfrecord", "jsonl", "npy", "arrow", "parquet"] = "tfrecord",
    shards: int = 8,
    schema: Any = None,
    *,
    compression: Literal["GZIP", "ZLIB", "ZSTD", "zstd-record"] | None = None,
    overwrite: bool = False,
) -> Written:
    """Writes elements to the files PREFIX-00000-of-00008.tfrecord and so on, which get them in turn.

        >>> import millrace as mr, tempfile
        >>> with tempfile.TemporaryDirectory() as d:
        ...     w = mr.write([{"size": 1.5, "name": "a"}, {"size": 2.5, "name": "b"}], d + "/train", shards=2)
        ...     ds = mr.tfrecord(w.pattern).map(lambda r: mr.fn.parse_example(r, size=mr.float32))
        ...     w.records, sorted(r["size"].item() for r in ds)
        (2, [1.5, 2.5])

    Args:
        ds_or_iterable: a Dataset, or Python elements: dicts or tuples of numbers, str, bytes, lists and
            arrays, or single ones. Ints are int64, floats float32; arrays keep their type.
        prefix: a path, and the beginning of the names. Folders must exist. Or s3://bucket/beginning: then
            any earlier set is AlreadyExists without overwrite.
        format: "tfrecord": Examples, except that single bytes are written as they are; "jsonl"; "npy":
            numbers of one shape; "arrow" or "parquet": a column for each component.
        shards: number of files, 1 to 99,999.
        schema: the types of Python elements, as in {"x": mr.float32[3]} or its text; None: those of the
            first element, with axes of any length. A Dataset knows its types.
        compression: "GZIP", "ZLIB" or "ZSTD", of whole files, pages or buffers, where the format has
            it; "zstd-record": each Example by itself. Parquet's default is "ZSTD".
        overwrite: also replace an earlier set with another number of files or another format.

    The files get their names when all are complete. If anything fails, or is interrupted, those of an
    earlier set remain, and no others.

    Raises InvalidArgument for elements that the format has no type for, AlreadyExists for another set
    of the same prefix, what the elements raise, and errors of writing.
    """
    if format not in FORMATS:
        raise ValueError(f"format is one of {', '.join(map(repr, FORMATS))}, not {format!r}")
    if isinstance(shards, bool) or not isinstance(shards, int):
        raise TypeError(f"shards is a number of files, not {shards!r:.80}")
    path = os.fsencode(prefix)
    if not path or path.endswith(b"/"):
        raise InvalidArgument(
            f"the prefix {os.fsdecode(path)!r} has no name after its folder; give one: {os.fsdecode(path) + 'train'!r}"
        )
    opts = ffi.new("mr_shard_writer_opts *")
    opts.format = number = getattr(lib, f"MR_SHARDS_{format.upper()}")
    opts.overwrite = bool(overwrite)
    _compress(opts, format, compression)
    raised: list[BaseException] = []
    ds = _dataset_of(ds_or_iterable, schema, raised)
    st = ffi.new("mr_status *")
    check(lib.mr_write_elements_check(ds._pointer(), number, st), st)
    out, made = ffi.new("mr_shard_writer **"), ffi.new("mr_cancel **")
    check(lib.mr_cancel_new(ffi.NULL, made, st), st)
    opts.cancel = cancel = ffi.gc(made[0], lib.mr_cancel_unref)

    def close() -> None:
        writer, out[0] = out[0], ffi.NULL
        check(lib.mr_shard_writer_close(writer, st), st)

    try:
        _guarded(cancel, lambda: check(lib.mr_shard_writer_open(out, path, shards, opts, st), st))
        _elements(ds, out[0], cancel)
        records = int(lib.mr_shard_writer_records(out[0]))
        _guarded(cancel, close)
    except BaseException:
        if out[0] != ffi.NULL:
            lib.mr_shard_writer_abort(out[0])
        if raised:
            raise raised[0] from None
        raise
    ending = text_of(lib.mr_shard_ending(number))
    name = os.fsdecode(path)
    quoted = lib.mr_glob_quote(path)
    pattern = f"{text_of(quoted)}-*-of-{shards:05}.{ending}"
    lib.mr_free(quoted)
    return Written(records, tuple(f"{name}-{i:05}-of-{shards:05}.{ending}" for i in range(shards)), pattern)


def _compress(opts: Any, format: str, compression: str | None) -> None:
    if format == "parquet":
        opts.compression = lib.MR_COMPRESSION_ZSTD
    if compression is None:
        return
    if compression not in COMPRESSIONS:
        raise ValueError(f"compression is one of {', '.join(map(repr, COMPRESSIONS))}, not {compression!r}")
    if compression == "zstd-record":
        opts.zstd_records = True
        return
    found = ffi.new("mr_compression *")
    lib.mr_compression_find(compression.encode(), found)
    opts.compression = found[0]


def _guarded(cancel: Any, call: Callable[[], None], engine: Engine | None = None) -> None:
    """Calls it; Ctrl-C ends it."""
    _fast.guarded(0 if engine is None else _address(engine.it), _address(cancel), call)


def _elements(ds: Dataset, writer: Any, cancel: Any) -> None:
    st = ffi.new("mr_status *")
    opts = ffi.new("mr_iterator_opts *")
    opts.cancel = cancel
    options = Options(None, None, None)
    options.positions = False
    engine = Engine(ds, options, None)
    try:
        _guarded(cancel, lambda: check(lib.mr_write_iterator(engine.it, writer, opts, st), st), engine)
    except Exception:
        engine.close()
        raise
    except BaseException:  # an interrupt, after which a function of Python is not waited for
        (_close_soon if runs_python(ds) else Engine.close)(engine)
        raise
    engine.close()


def _dataset_of(x: Any, schema: Any, raised: list[BaseException]) -> Dataset:
    """A dataset of the elements; what an iterable raises is kept in `raised`."""
    if isinstance(x, Dataset):
        if schema is not None:
            raise TypeError("schema is for Python elements; the types of a Dataset are known: ds.element_spec")
        return x
    if isinstance(x, (str, bytes, Mapping)) or not isinstance(x, Iterable):
        raise TypeError(f"expected a Dataset or an iterable of elements, not {x!r:.80}")
    elements = iter(x)
    first = list(itertools.islice(elements, 1))
    if schema is not None:
        spec = _spec_of_text(schema) if isinstance(schema, str) else as_spec(schema)
    elif first:
        try:
            spec = _any_length(spec_of_result(first[0]))
        except Mismatch as e:
            raise InvalidArgument(f"of the first element, {str(e).replace('the result', 'the value')}") from None
    else:
        raise InvalidArgument('there are no elements to show the types; give them: schema={"x": mr.float32[3]}')

    def run() -> Iterator[Any]:
        try:
            yield from itertools.chain(first, elements)
        except GeneratorExit:
            raise
        except BaseException as e:
            raised.append(e)
            raise

    return from_generator(run, spec)


def _any_length(spec: Spec) -> Spec:
    if isinstance(spec, TensorSpec):
        return spec if spec.shape is None else TensorSpec((None,) * len(spec.shape), spec.dtype, spec.ragged)
    if isinstance(spec, dict):
        return {name: _any_length(s) for name, s in spec.items()}
    return tuple(map(_any_length, spec)) if isinstance(spec, tuple) else spec


def _spec_of_text(text: str) -> Any:
    from ._generated import jsonl

    return jsonl("-", text).element_spec
