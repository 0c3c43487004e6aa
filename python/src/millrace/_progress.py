# SPDX-License-Identifier: Apache-2.0
"""Iterators that show how far they are, with tqdm where it is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._iterator import Iterator

if TYPE_CHECKING:
    from ._dataset import Dataset


class ProgressIterator(Iterator):
    """An Iterator with a bar, which counts the elements that this one has delivered."""

    def __init__(self, ds: Dataset, **options: Any) -> None:
        super().__init__(ds, **options)
        self._bar = _bar(ds)

    def __next__(self) -> Any:
        try:
            x = super().__next__()
        except StopIteration:
            self._close_bar()
            raise
        if self._bar is not None:
            self._bar.update(1)
        return x

    def close(self) -> None:
        self._close_bar()
        super().close()

    def _close_bar(self) -> None:
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.close()


def _bar(ds: Dataset) -> Any:
    try:
        from tqdm.auto import tqdm  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        return None
    n = ds.cardinality()
    return tqdm(total=n if n >= 0 else None, unit=" elements", unit_scale=True)


def progress(ds: Dataset) -> Iterator:
    """An iterator of ds that shows a bar of its progress, with the number of elements where it is
    known. It needs tqdm; without it, this is `iter(ds)`.

        >>> import millrace as mr
        >>> for x in mr.progress(mr.range(3)):
        ...     pass
    """
    from ._dataset import Dataset

    if not isinstance(ds, Dataset):
        raise TypeError(f"progress: expected a dataset, not {type(ds).__name__}")
    return ProgressIterator(ds)
