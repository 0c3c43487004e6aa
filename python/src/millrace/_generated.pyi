# SPDX-License-Identifier: Apache-2.0
# Written by generate.py from `millrace ops --json`; do not edit.
# mypy: disable-error-code="empty-body"
# pyright: reportReturnType=false
# ruff: noqa: A001, A002, E501
"""Sources, and the methods of datasets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ._call import Features, Function, Path, Paths
from ._dataset import Dataset
from ._values import Auto

class Methods:
    """What Dataset inherits: a method for each op."""

    __slots__ = ()

    def assert_cardinality(self, cardinality: int) -> Dataset:
        """Fails unless the input has that many elements, which makes their number known.

        Args:
            cardinality: The number of elements of the input; -1: without end.

        Order: kept.
        Memory: a block.
        State: a counter.
        Elements: cardinality.

        Example:
            mr.range(9).filter(lambda x: x % 2 == 0).assert_cardinality(5)
        """

    def batch(
            self,
            batch_size: int,
            drop_remainder: bool = False,
            *,
            num_parallel_calls: int | Auto | None = None,
            deterministic: bool | None = None,
        ) -> Dataset:
        """Groups consecutive elements along a new axis 0.

        Args:
            batch_size: Elements in a batch, at least 1.
            drop_remainder: Drops a last batch of fewer than batch_size elements.
            num_parallel_calls: Batches collected at once; the order is kept.
            deterministic: Accepted for compatibility with tf.data: the order is always kept.
                Default: True.

        Order: kept.
        Memory: a batch.
        State: that of its inputs.
        Elements: n / batch_size, rounded up; down with drop_remainder.

        Example:
            mr.range(10).batch(4)
        """

    def bucket_by_sequence_length(
            self,
            length_fn: Function,
            boundaries: int | Sequence[int],
            batch_sizes: int | Sequence[int],
            padded_shapes: Any = None,
            padding_values: Any = None,
            pad_to_bucket_boundary: bool = False,
            no_padding: bool = False,
            drop_remainder: bool = False,
        ) -> Dataset:
        """Makes padded batches of elements of similar length.

        Args:
            length_fn: The length of an element, an integer.
            boundaries: The lengths at which buckets end, in ascending order.
            batch_sizes: Elements in a batch of each bucket; one more number than boundaries.
            padded_shapes: As for padded_batch; None: to the largest in the batch.
            padding_values: As for padded_batch; None: 0, false or the empty string.
            pad_to_bucket_boundary: Pads open axes to one less than the bucket's boundary.
            no_padding: Batches without padding: the elements of a bucket must have the same
                shape.
            drop_remainder: Drops incomplete batches at the end.

        Order: batches as they fill; at the end the remaining ones, by bucket.
        Memory: up to a batch for each bucket.
        State: the elements held.
        Elements: unknown; without end where the input is.

        Example:
            mr.range(1, 7).map(lambda x: mr.fn.ones([x])).bucket_by_sequence_length(lambda x: mr.fn.length(x), [3, 5], [2, 2, 2])
        """

    def cache(
            self,
            filename: Path | None = None,
            *,
            strict: bool = False,
            graph: str | None = None,
        ) -> Dataset:
        """Keeps the elements in memory or in a file; later passes do not read the input again.

        Args:
            filename: Keeps the elements in the file FILENAME.cache, for later runs too; else in
                memory.
            strict: Refuses the file if an input was written since, even if its size is the
                same.
            graph: Fingerprint of the graph that the elements come from, set where streams or
                workers run parts of a graph; default: that of the graph below.

        Order: kept.
        Memory: all elements; with a file, a block and the names of the files read.
        State: a counter, and the input's position where recording began.
        Elements: n.

        Example:
            mr.range(3).cache().repeat(2)
        """

    def concatenate(self, other: Dataset) -> Dataset:
        """Emits the elements of one dataset, then those of another of the same types.

        Order: the first input, then the second.
        Memory: a block.
        State: which input.
        Elements: the sum of both.

        Example:
            mr.range(3).concatenate(mr.range(10, 12))
        """

    def enumerate(self, start: int = 0) -> Dataset:
        """Pairs each element with its number.

        Args:
            start: Number of the first element.

        Order: kept.
        Memory: a block.
        State: a counter.
        Elements: n.

        Example:
            mr.range(5, 8).enumerate(start=1)
        """

    def filter(
            self,
            fn: Function,
            *,
            num_parallel_calls: int | Auto | None = None,
            deterministic: bool | None = None,
        ) -> Dataset:
        """Keeps the elements for which a function returns true.

        Args:
            fn: True for the elements to keep.
            num_parallel_calls: Blocks evaluated at once; mr.AUTO: as needed; None: sequential.
            deterministic: Keeps the order; False: emits elements as they are finished. Default:
                True.

        Order: kept.
        Memory: a block for each parallel call.
        State: that of its inputs.
        Elements: unknown.

        Example:
            mr.range(10).filter(lambda x: x % 2 == 1)
        """

    def flat_map(self, fn: Function) -> Dataset:
        """Concatenates the datasets that a function returns for the elements.

        Args:
            fn: Makes a dataset from each element.

        Order: of each dataset kept, one after the other.
        Memory: a block of the current dataset.
        State: the current dataset: the element that it was made from, and its position.
        Elements: n times that of the datasets, if it is the same for all.

        Example:
            mr.range(4).flat_map(lambda n: mr.range(n))
        """

    def global_shuffle(
            self,
            seed: int | None = None,
            reshuffle_each_iteration: bool | None = None,
            window: int | None = None,
        ) -> Dataset:
        """Emits all elements of an indexed dataset in one random order, without a buffer.

        Args:
            seed: Fixes the order; drawn at random if absent.
            reshuffle_each_iteration: Draws a new order in each epoch. Default: True.
            window: Permutes blocks of this number of neighbours, and the elements within each;
                None: all elements.

        Order: random: a permutation of all elements.
        Memory: the files' indexes, and up to a thousand elements of a source, about 1 MiB.
        State: two numbers and a counter.
        Elements: n.

        Example:
            mr.tfrecord("train-*.tfrecord").global_shuffle(seed=42)
        """

    def group_by_window(
            self,
            key_fn: Function,
            reduce_fn: Function,
            window_size: Any = None,
            *,
            window_size_fn: Function | None = None,
        ) -> Dataset:
        """Groups elements with the same key into datasets, and concatenates what a function makes of
        each.

        Args:
            key_fn: The key of an element, an integer.
            reduce_fn: Makes a dataset from a key and the dataset of its elements.
            window_size: Elements that make a group full, at least 1; an integer, or a function
                of the key.
            window_size_fn: The size as a function of the key, under tf.data's name.

        Order: windows as they fill; at the end the remaining ones, by key.
        Memory: up to a window for each key.
        State: the elements held.
        Elements: unknown; without end where the input is.

        Example:
            mr.range(10).group_by_window(lambda x: x % 2, lambda key, w: w.batch(3), 3)
        """

    def ignore_errors(self, log_warning: bool = False, *, max: int | None = None) -> Dataset:
        """Drops elements that failed; errors that belong to no element pass.

        Args:
            log_warning: Logs each error that is dropped.
            max: Errors to drop in a pass; one more is returned. None: any number.

        Order: kept.
        Memory: a block.
        State: the number of dropped elements.
        Elements: unknown.

        Example:
            mr.from_tensor_slices([2, 0, 1]).map(lambda x: 2 // x).ignore_errors(max=10)
        """

    def interleave(
            self,
            fn: Function,
            cycle_length: int | Auto | None = None,
            block_length: int | None = None,
            num_parallel_calls: int | Auto | None = None,
            *,
            deterministic: bool | None = None,
        ) -> Dataset:
        """Cycles through the datasets that a function returns, taking elements of each in turn.

        Args:
            fn: Makes a dataset from each element.
            cycle_length: Datasets taken in turn; mr.AUTO or absent: 16.
            block_length: Elements taken from one before the next. Default: 1.
            num_parallel_calls: Datasets read at once; mr.AUTO: as the consumer needs; None:
                sequential.
            deterministic: Keeps the order; False: emits elements as they become available.
                Default: True.

        Order: block_length elements of each dataset in turn; with deterministic=False as they come.
        Memory: a block of each of cycle_length datasets.
        State: each open dataset: the element that it was made from, and its position.
        Elements: n times that of the datasets, if it is the same for all.

        Example:
            mr.range(4).interleave(lambda n: mr.range(n), cycle_length=2)
        """

    def map(
            self,
            fn: Function,
            num_parallel_calls: int | Auto | None = None,
            *,
            deterministic: bool | None = None,
        ) -> Dataset:
        """Replaces each element with the result of a function.

        Args:
            fn: Computes the new element.
            num_parallel_calls: Blocks evaluated at once; mr.AUTO: as needed; None: sequential.
            deterministic: Keeps the order; False: emits elements as they are finished. Default:
                True.

        Order: kept; with deterministic=False as they come.
        Memory: a block for each parallel call.
        State: that of its inputs.
        Elements: n.

        Example:
            mr.range(5).map(lambda x: x * x, num_parallel_calls=2)
        """

    def padded_batch(
            self,
            batch_size: int,
            padded_shapes: Any = None,
            padding_values: Any = None,
            drop_remainder: bool = False,
        ) -> Dataset:
        """Groups consecutive elements, each padded to a common shape.

        Args:
            batch_size: Elements in a batch, at least 1.
            padded_shapes: Shapes to pad to, structured like the element; -1 or None: the
                largest in the batch.
            padding_values: Value to pad with, for all components or structured like the
                element; a number takes the component's type. Default: 0 or "".
            drop_remainder: Drops a last batch of fewer than batch_size elements.

        Order: kept.
        Memory: a batch.
        State: that of its inputs.
        Elements: n / batch_size, rounded up; down with drop_remainder.

        Example:
            mr.range(1, 5).map(lambda x: mr.fn.zeros([x])).padded_batch(2)
        """

    def prefetch(self, buffer_size: int | Auto) -> Dataset:
        """Reads ahead on another thread; passes its input through.

        Args:
            buffer_size: Elements read ahead; mr.AUTO, 0 or -1: blocks as the consumer needs.

        Order: kept.
        Memory: buffer_size elements.
        State: that of its inputs.
        Elements: n.

        Example:
            mr.range(5).map(lambda x: x + 1).prefetch(2)
        """

    def ragged_batch(self, batch_size: int, drop_remainder: bool = False) -> Dataset:
        """Groups consecutive elements, whose lengths may differ, along a new axis 0.

        Args:
            batch_size: Elements in a batch, at least 1.
            drop_remainder: Drops a last batch of fewer than batch_size elements.

        Order: kept.
        Memory: a batch.
        State: that of its inputs.
        Elements: n / batch_size, rounded up; down with drop_remainder.

        Example:
            mr.range(4).map(lambda x: mr.fn.ones([x])).ragged_batch(2)
        """

    def rebatch(
            self,
            batch_sizes: int | Sequence[int],
            drop_remainder: bool = False,
        ) -> Dataset:
        """Regroups the rows of batches into batches of the given sizes.

        Args:
            batch_sizes: Rows of an element, or a list of sizes to cycle through; 0 makes an
                empty element.
            drop_remainder: Drops an incomplete last element.

        Order: kept.
        Memory: a batch that is cut.
        State: counters.
        Elements: unknown.

        Example:
            mr.range(12).batch(4).rebatch(6)
        """

    def rejection_resample(
            self,
            class_fn: Function,
            target_dist: Sequence[float],
            initial_dist: Sequence[float] | None = None,
            seed: int | None = None,
        ) -> Dataset:
        """Drops elements at random so that classes have the target frequencies; emits (class,
        element).

        Args:
            class_fn: The class of an element, an integer from 0.
            target_dist: Target frequency of each class, in proportion.
            initial_dist: Current frequency of each class, in proportion; counted while running
                if absent.
            seed: Fixes which elements are dropped; drawn at random if absent.

        Order: kept.
        Memory: a counter for each class.
        State: the counters and the draws.
        Elements: unknown.

        Example:
            mr.range(20).rejection_resample(lambda x: x % 2, [0.9, 0.1], initial_dist=[0.5, 0.5], seed=1)
        """

    def repeat(self, count: int | None = None) -> Dataset:
        """Repeats the input, with a new iterator for each pass.

        Args:
            count: Number of epochs; absent or negative: without end; 0: no elements.

        Order: kept.
        Memory: a block.
        State: which pass.
        Elements: n times count.

        Example:
            mr.range(3).repeat(2)
        """

    def replica_slices(self, n: int) -> Dataset:
        """Cuts each element into n equal slices along axis 0; the last ones may be short or empty.

        Args:
            n: Slices of each element, at least 1.

        Order: kept.
        Memory: a block.
        State: a counter.
        Elements: n times the number of slices.

        Example:
            mr.range(8).batch(4).replica_slices(3)
        """

    def save(self, path: Path) -> Dataset:
        """Passes elements through and writes them to a folder, for load.

        Args:
            path: The folder to write the elements to.

        Order: kept.
        Memory: a block.
        State: a counter, and the input's position at its start.
        Elements: n.

        Example:
            mr.range(3).save("saved")
        """

    def scan(self, init: Any, fn: Function) -> Dataset:
        """Emits the outputs of a function of a running state and each element.

        Args:
            init: The first state: a value, or a tuple or record of them.
            fn: Computes the next state and the output from the state and an element.

        Order: kept, one element after the other.
        Memory: the state of the function.
        State: the state of the function.
        Elements: n.

        Example:
            mr.range(5).scan(0, lambda s, x: (s + x, s))
        """

    def shard(self, num_shards: int, index: int, *, require_non_empty: bool = False) -> Dataset:
        """Keeps every num_shards-th element.

        Args:
            num_shards: Shards in all; -1: to be replaced by the rewrite.
            index: The shard to keep, from 0.
            require_non_empty: Fails if the input has elements, but fewer than num_shards.

        Order: kept.
        Memory: a block.
        State: a counter.
        Elements: n / num_shards, rounded up for the first ones.

        Example:
            mr.range(10).shard(3, 1)
        """

    def shuffle(
            self,
            buffer_size: int,
            seed: int | None = None,
            reshuffle_each_iteration: bool | None = None,
        ) -> Dataset:
        """Emits the elements in random order, each drawn from a buffer of the next ones.

        Args:
            buffer_size: Elements held, at least 1; -2: the whole dataset.
            seed: Fixes the order; drawn at random if absent.
            reshuffle_each_iteration: Draws a new order in each epoch. Default: True.

        Order: random, from a buffer.
        Memory: buffer_size elements.
        State: the input's position at its start and counters; the elements where the input cannot be read again.
        Elements: n.

        Example:
            mr.range(10).shuffle(10, seed=42)
        """

    def skip(self, count: int) -> Dataset:
        """Leaves out the first elements.

        Args:
            count: Elements to leave out; negative: all.

        Order: kept.
        Memory: a block.
        State: a counter.
        Elements: n less count.

        Example:
            mr.range(10).skip(7)
        """

    def snapshot(self, path: Path) -> Dataset:
        """Keeps the elements in a file named after their graph; later runs of the same graph read
        them.

        Args:
            path: The folder of the snapshots, one for each graph.

        Order: kept.
        Memory: a block.
        State: a counter, and the input's position at its start.
        Elements: n.

        Example:
            mr.range(3).snapshot("snapshots")
        """

    def split(
            self,
            fractions: Sequence[float] | None = None,
            index: int = 0,
            seed: int = 0,
        ) -> Dataset:
        """Emits one part of a random cut of an indexed dataset.

        Args:
            fractions: The share of each part, together at most 1; default: [0.9, 0.1].
            index: The part to emit, from 0.
            seed: Determines the cut; must be the same for all parts.

        Order: kept.
        Memory: as global_shuffle; 8 MiB at most for access by number.
        State: a counter.
        Elements: n times the fraction, rounded.

        Example:
            mr.range(10).split([0.7, 0.3], index=1, seed=5)
        """

    def take(self, count: int) -> Dataset:
        """Emits the first elements and ends.

        Args:
            count: Elements to keep; negative: all.

        Order: kept.
        Memory: a block.
        State: a counter.
        Elements: count, or n if that is less.

        Example:
            mr.range(10).take(3)
        """

    def take_while(self, fn: Function) -> Dataset:
        """Ends before the first element for which a function returns false.

        Args:
            fn: True for the elements to take; the first false ends the dataset.

        Order: kept.
        Memory: a block.
        State: whether it has ended.
        Elements: unknown.

        Example:
            mr.range(10).take_while(lambda x: x < 4)
        """

    def unbatch(self) -> Dataset:
        """Splits each element along axis 0.

        Order: kept.
        Memory: an element.
        State: the rows taken of the current element.
        Elements: n times axis 0 if known; right after a batch, as many as before it.

        Example:
            mr.range(10).batch(4).unbatch()
        """

    def unique(self) -> Dataset:
        """Drops elements that occurred before.

        Order: kept.
        Memory: a copy of each value so far.
        State: the values so far.
        Elements: unknown.

        Example:
            mr.from_tensor_slices([1, 3, 1, 2, 3]).unique()
        """

    def window(
            self,
            size: int,
            shift: int | None = None,
            stride: int = 1,
            drop_remainder: bool = False,
        ) -> Dataset:
        """Makes datasets of consecutive elements, one for each component.

        Args:
            size: Elements in a window, at least 1.
            shift: Elements from the start of one window to the start of the next; default:
                size.
            stride: Step between the elements of a window.
            drop_remainder: Drops windows that the end of the input cuts short.

        Order: kept, within each window.
        Memory: the elements that later windows need.
        State: the elements held.
        Elements: the number of windows.

        Example:
            mr.range(7).window(3, shift=2, drop_remainder=True).flat_map(lambda w: w.batch(3))
        """

    def with_options(
            self,
            *,
            auto_shard_policy: Literal["AUTO", "FILE", "DATA", "OFF", "HINT", "RANGE"] | None = None,
            deterministic: bool | None = None,
            memory_limit: int = 0,
            elastic_streams: int = 0,
            cache_dir: Path | None = None,
            remote_connections: int = 0,
            remote_read_ahead: int = 0,
        ) -> Dataset:
        """Sets options for the whole graph.

        Args:
            auto_shard_policy: How a distributed dataset is split over workers. One of "AUTO",
                "FILE", "DATA", "OFF", "HINT", "RANGE".
            deterministic: Keeps the order in ops that do not set deterministic themselves.
                Default: True.
            memory_limit: Maximum resident bytes of the process: near it less is read ahead; 0:
                no limit.
            elastic_streams: Number of streams of an elastic job, the maximum number of its
                replicas; 0: the job is not elastic.
            cache_dir: Directory where pieces of remote files are kept; default:
                MILLRACE_CACHE_DIR.
            remote_connections: Maximum number of connections to each host of URLs, and number
                of ranges of a file read at once (at most 64); 0: up to 64 connections and 16
                ranges, chosen while reading.
            remote_read_ahead: Bytes of the file of a URL that are requested before they are
                needed; 0: chosen while reading.

        Order: kept.
        Memory: a block.
        State: that of its inputs.
        Elements: n.

        Example:
            mr.range(3).with_options(auto_shard_policy="DATA")
        """

    def zip(self, *others: Dataset) -> Dataset:
        """Combines one element of each input; ends with the shortest.

        Order: of each input kept.
        Memory: a block of each input.
        State: that of its inputs.
        Elements: that of the shortest input.

        Example:
            mr.zip(mr.range(3), mr.range(10, 20))
        """

    def distribute(
            self,
            service: str,
            processing_mode: Literal["exactly_once", "dynamic", "parallel_epochs", "file", "data", "file_or_data", "hint"] = 'exactly_once',
            *,
            job_name: str | None = None,
            streams: int | Auto = 0,
            block_length: int = 1,
            deterministic: bool | None = None,
            consumer_index: int | None = None,
            num_consumers: int | None = None,
            compression: Literal["ZSTD", "auto"] | Auto | None = None,
            max_outstanding_bytes: int | Auto = 0,
            target_workers: Literal["auto", "any", "local"] = 'auto',
            transfer: Literal["auto", "tcp", "shared_memory"] | Auto = 'auto',
            resume: bool = False,
            match: Literal["worker", "client"] = 'worker',
            on_missing: Literal["fail", "move"] = 'fail',
            seed: int | None = None,
            connect_timeout: float = 60.0,
            stall_timeout: float | None = None,
            client_timeout: float = 30.0,
        ) -> Dataset:
        """Runs the graph below it as streams of a data service, and reads them in turn.

        Args:
            service: HOST:PORT of the dispatcher; "local": this process, without a server.
            processing_mode: Delivery guarantee for each element. One of "exactly_once",
                "dynamic", "parallel_epochs", "file", "data", "file_or_data", "hint".
            job_name: Clients with the same name share a job; None: a new job.
            streams: Number of streams that the graph is cut into; mr.AUTO: 8, or the number of
                files if smaller.
            block_length: Number of elements of a stream before the next stream's turn.
            deterministic: Keeps the order; False: blocks come from whichever stream has one.
                Default: True.
            consumer_index: Index of this consumer, from 0.
            num_consumers: Number of consumers that read the job together, each its own streams.
            compression: Compression of blocks on the network; auto: if the link is slower than
                compressing. One of "ZSTD", "auto".
            max_outstanding_bytes: Maximum bytes in transit or waiting here; mr.AUTO: 4 blocks
                of each stream, at least 16 MiB.
            target_workers: Workers to read from; local: only those on this host. One of "auto",
                "any", "local".
            transfer: How blocks are transferred; auto: through shared memory from workers on
                this host. One of "auto", "tcp", "shared_memory".
            resume: Resumes after the elements that were acknowledged under job_name.
            match: Whether workers or the client expand file patterns. One of "worker",
                "client".
            on_missing: If a worker cannot see a file: fail, or move the stream to another
                worker. One of "fail", "move".
            seed: Seed for random ops without one; drawn at random if absent.
            connect_timeout: Seconds to wait for the dispatcher.
            stall_timeout: Seconds without an element after which reading fails; None: it waits.
            client_timeout: Seconds after which a silent client loses its streams.

        Order: an element of each stream in turn.
        Memory: the blocks that the streams have sent ahead.
        State: the position in each stream.
        Elements: the sum over the streams where that is known.

        Example:
            mr.range(10).batch(2).distribute("local", streams=2)
        """


def arrow(
        *files: Paths,
        columns: str | Sequence[str] | None = None,
        schema: Features | None = None,
    ) -> Dataset:
    """The rows of Arrow IPC files (streams and files), as records of their columns.

    Args:
        files: Paths, or patterns; several are read in the order given.
        columns: The columns to read; "x.a" is field a of column x; default: all.
        schema: {"name": dtype, ...}: the columns and their types, instead of those of the
            first file; dtype[] is a list, and feature(dtype, default=v) a column that may
            be null or missing.

    Order: by file, then by row.
    Memory: a record batch, and the dictionaries of the columns.
    State: file and row.
    Elements: the rows of all files; unknown for a pipe.

    Example:
        mr.arrow("people-*.arrow", schema={"name": mr.bytes, "age": mr.int64})
    """


def choose_from_datasets(
        datasets: Sequence[Dataset],
        choice_dataset: Dataset,
        stop_on_empty_dataset: bool | None = None,
    ) -> Dataset:
    """Takes each element from the dataset whose number the last dataset yields.

    Args:
        datasets: The datasets, numbered from 0.
        choice_dataset: Emits for each element the number of its dataset.
        stop_on_empty_dataset: Ends with the first dataset that ends; False: ignores its
            numbers from then on. Default: True.

    Order: of each input kept; between them as the last input says.
    Memory: a block of each input.
    State: that of its inputs.
    Elements: unknown; without end where every input is.

    Example:
        mr.choose_from_datasets([mr.range(3), mr.range(10, 13)], mr.from_tensor_slices([0, 1, 1, 0]))
    """


def counter(start: int = 0, step: int | None = None) -> Dataset:
    """Counts from start by step, without end.

    Args:
        start: First number.
        step: Distance from one number to the next. Default: 1.

    Order: by number.
    Memory: a block.
    State: a counter.
    Elements: without end.

    Example:
        mr.counter(5, step=2).take(3)
    """


def csv(
        files: Paths,
        features: Features,
        header: bool | None = None,
        *,
        sep: str | None = None,
        compression: Literal["", "GZIP", "ZLIB", "ZSTD"] = '',
    ) -> Dataset:
    """The rows of CSV files, as records or tuples of typed fields.

    Args:
        files: Paths, or patterns; several are read in the order given.
        features: {"name": feature, ...}, or a list of features by their places. A feature
            is a dtype, or feature(dtype, default=v) if the field may be empty.
        header: The first line of each file names its columns. Default: True.
        sep: The character between fields; a comma if absent.
        compression: Compression of the files as a whole; empty: detected by their first
            bytes. One of "", "GZIP", "ZLIB", "ZSTD".

    Order: by file, then by line.
    Memory: the current chunk, and the file's read-ahead.
    State: file, offset and line.
    Elements: unknown.

    Example:
        mr.csv("table.csv", {"name": mr.bytes, "x": mr.float32})
    """


def files(*files: Paths, compression: Literal["", "GZIP", "ZLIB", "ZSTD"] = '') -> Dataset:
    """Whole files: {"contents": bytes, "path": bytes}.

    Args:
        files: Paths, or patterns; several are read in the order given.
        compression: Compression of the files as a whole; empty: none. One of "", "GZIP",
            "ZLIB", "ZSTD".

    Order: by file.
    Memory: a file.
    State: which file.
    Elements: unknown.

    Example:
        mr.files("notes-*.txt").map(lambda f: f["contents"])
    """


def fixed_length_record(
        files: Paths,
        record_bytes: int,
        header_bytes: int = 0,
        footer_bytes: int = 0,
        *,
        compression: Literal["", "GZIP", "ZLIB", "ZSTD"] = '',
    ) -> Dataset:
    """The records of files in which all records have the same length.

    Args:
        files: Paths, or patterns; several are read in the order given.
        record_bytes: Bytes of a record; at least 1.
        header_bytes: Bytes skipped at the beginning of each file.
        footer_bytes: Bytes skipped at the end of each file.
        compression: Compression of the files as a whole; empty: none. One of "", "GZIP",
            "ZLIB", "ZSTD".

    Order: by file, then by record.
    Memory: the current chunk, and the file's read-ahead.
    State: file and offset.
    Elements: by the sizes of the files; unknown if they are compressed.

    Example:
        mr.fixed_length_record("labels.bin", 1, header_bytes=8)
    """


def image_folder(dir: Path, *, extensions: str | Sequence[str] | None = None) -> Dataset:
    """Images labelled by their folders: {"image": bytes, "label": int64, "path": bytes}.

    Args:
        dir: The folder with a subfolder for each class.
        extensions: The extensions of images, in lower or upper case; default: "jpg", "jpeg"
            and "png".

    Order: by folder, then by name.
    Memory: an image.
    State: which image.
    Elements: the number of images.

    Example:
        mr.image_folder("pets").map(lambda x: (x["image"], x["label"]))
    """


def jsonl(
        files: Paths,
        features: Features,
        *,
        compression: Literal["", "GZIP", "ZLIB", "ZSTD"] = '',
    ) -> Dataset:
    """The objects of JSON-lines files, as records of typed fields.

    Args:
        files: Paths, or patterns; several are read in the order given.
        features: {"name": feature, ...}: the values to read from each object. A feature is
            a dtype, with a shape after it ([3, 4]; [] for any length), or feature(dtype,
            shape=[..], default=v) where it may be missing; the type json is the text of a
            value. {"name": feature, ...} is a record, and [{"name": feature, ...}] a list
            of records, each feature of which is a list.
        compression: Compression of the files as a whole; empty: detected by their first
            bytes. One of "", "GZIP", "ZLIB", "ZSTD".

    Order: by file, then by line.
    Memory: the current chunk, and the file's read-ahead.
    State: file, offset and line.
    Elements: unknown.

    Example:
        mr.jsonl("people-*.jsonl", {"name": mr.bytes, "age": mr.fn.feature(mr.int64, default=-1)})
    """


def list_files(
        *patterns: str | Sequence[str],
        shuffle: bool = False,
        seed: int | None = None,
    ) -> Dataset:
    """The names of the files that match patterns, sorted.

    Args:
        patterns: Patterns of paths; * ? and [..] match within one part of a path. A part
            that exists as it is written is a name.
        shuffle: Emits the names in a different order in each epoch.
        seed: Fixes the order of shuffle; drawn at random if absent.

    Order: by name; random with shuffle.
    Memory: all names.
    State: a counter, and two numbers of the order.
    Elements: unknown.

    Example:
        mr.list_files("*.md")
    """


def load(path: Path, *, allow_datasets: bool = False) -> Dataset:
    """The elements that save wrote to a folder.

    Args:
        path: The folder that save wrote to.
        allow_datasets: Accepts elements that are datasets: graphs that the file's writer
            chose. Graphs that write files are still refused.

    Order: as save wrote them.
    Memory: a block.
    State: a counter.
    Elements: the number of elements saved.

    Example:
        mr.load("elements")
    """


def mix(
        sources: Mapping[str, Dataset],
        weights: Mapping[str, float] | None = None,
        seed: int | None = None,
        stop: Literal["first", "all", "repeat"] = 'first',
    ) -> Dataset:
    """Takes each element from a source drawn at random; the sources have names, by which a later
    mixture finds their positions.

    Args:
        sources: The datasets by their names.
        weights: How often each source is drawn, in proportion, as in {"web": 0.7, "code":
            0.3}; equally often if absent.
        seed: Fixes the order; drawn at random if absent.
        stop: When the mixture ends: with the first source that ends; when all have ended,
            and until then without those that have; or when all have ended once, while one
            that ends begins its next epoch. One of "first", "all", "repeat".

    Order: of each source kept; between them random.
    Memory: a block of each source.
    State: the draws, and the sources by name.
    Elements: unknown; with stop="all" the sum of its sources'.

    Example:
        mr.mix({"web": mr.range(5), "code": mr.range(10, 15)}, weights={"web": 0.7, "code": 0.3}, seed=42)
    """


def npy(*files: Paths, schema: Features | None = None) -> Dataset:
    """The entries of numpy's NPY files along axis 0; a structured type makes records.

    Args:
        files: Paths, or patterns; several are read in the order given.
        schema: The type of the elements, float32[28, 28] or {"name": dtype[..], ...},
            instead of that of the first file.

    Order: by file, then along axis 0.
    Memory: the current chunk, and the file's read-ahead; a file in Fortran's order as a whole.
    State: file and entry.
    Elements: the entries stated in the files.

    Example:
        mr.npy("points-*.npy", schema=mr.int64[2])
    """


def npz(
        *files: Paths,
        arrays: str | Sequence[str] | None = None,
        schema: Features | None = None,
    ) -> Dataset:
    """The entries of the arrays of numpy's NPZ files along axis 0, as records.

    Args:
        files: Paths, or patterns; several are read in the order given.
        arrays: The names of the arrays that are read; if absent all.
        schema: {"name": dtype[..], ...}: the arrays and the types of their entries, instead
            of those of the first file.

    Order: by file, then along axis 0.
    Memory: the arrays of a file that are read.
    State: file and entry.
    Elements: the entries stated in the files.

    Example:
        mr.npz("arrays-*.npz", schema={"x": mr.int64[2], "y": mr.int64[2]})
    """


def parquet(
        *files: Paths,
        columns: str | Sequence[str] | None = None,
        schema: Features | None = None,
    ) -> Dataset:
    """The rows of Parquet files, as records of their columns.

    Args:
        files: Paths, or patterns; several are read in the order given.
        columns: The columns to read; "x.a" is field a of column x; default: all.
        schema: {"name": dtype, ...}: the columns and their types, instead of those of the
            first file; dtype[] is a list, and feature(dtype, default=v) a column that may
            be null or missing.

    Order: by file, then by row.
    Memory: a page of each column, its dictionary, and about 256 KiB of decoded rows.
    State: file and row.
    Elements: the number of rows stated in the files.

    Example:
        mr.parquet("people-*.parquet", schema={"name": mr.bytes, "age": mr.int64})
    """


def random(
        seed: int | None = None,
        rerandomize_each_iteration: bool | None = None,
    ) -> Dataset:
    """Random 32-bit numbers, without end; the same in each epoch.

    Args:
        seed: Fixes the numbers; drawn at random if absent.
        rerandomize_each_iteration: Draws new numbers in each epoch. Default: False.

    Order: random.
    Memory: a block.
    State: two numbers and a counter.
    Elements: without end.

    Example:
        mr.random(seed=4).take(3)
    """


def range(start: int, stop: int | None = None, step: int | None = None) -> Dataset:
    """Counts from start to stop by step, as Python's range.

    Args:
        start: First number; given alone it is the stop, and the first number is 0.
        stop: End of the numbers, exclusive.
        step: Distance from one number to the next; not 0, may be negative. Default: 1.

    Order: by number.
    Memory: a block.
    State: a counter.
    Elements: (stop - start) / step, rounded up.

    Example:
        mr.range(2, 10, 3)
    """


def sample_from_datasets(
        datasets: Sequence[Dataset],
        weights: Sequence[float] | None = None,
        seed: int | None = None,
        stop_on_empty_dataset: bool | None = None,
        rerandomize_each_iteration: bool | None = None,
    ) -> Dataset:
    """Takes each element from a dataset drawn at random.

    Args:
        datasets: The datasets, numbered from 0.
        weights: How often each dataset is drawn, in proportion; equally often if absent.
        seed: Fixes the order; drawn at random if absent.
        stop_on_empty_dataset: Ends with the first dataset that ends; False: continues with
            the others. Default: False.
        rerandomize_each_iteration: Draws a new order in each epoch. Default: False.

    Order: of each input kept; between them random.
    Memory: a block of each input.
    State: the draws.
    Elements: unknown; without end where an input with a weight is.

    Example:
        mr.sample_from_datasets([mr.range(5), mr.range(10, 15)], weights=[0.5, 0.5], seed=42)
    """


def tar(
        *files: Paths,
        compression: Literal["", "GZIP", "ZLIB", "ZSTD"] = '',
        members: str | Sequence[str] | None = None,
    ) -> Dataset:
    """The records of tar archives (WebDataset): {"__key__": bytes, "jpg": bytes, ...}.

    Args:
        files: Paths, or patterns; several are read in the order given.
        compression: Compression of the files as a whole; empty: detected by their first
            bytes. One of "", "GZIP", "ZLIB", "ZSTD".
        members: The members to read of each record; default: those of the first record of
            the first file. "jpg;jpeg;png": whichever the record has, as component jpg;
            "txt?": empty if it has none.

    Order: by archive, then in archive order.
    Memory: a record.
    State: file and record.
    Elements: unknown.

    Example:
        mr.tar("shard-*.tar", members=["jpg", "cls"])
    """


def text_line(
        files: Paths,
        *,
        compression: Literal["", "GZIP", "ZLIB", "ZSTD"] = '',
    ) -> Dataset:
    """The lines of text files, without line ends.

    Args:
        files: Paths, or patterns; several are read in the order given.
        compression: Compression of the files as a whole; empty: detected by their first
            bytes. One of "", "GZIP", "ZLIB", "ZSTD".

    Order: by file, then by line.
    Memory: the current chunk, and the file's read-ahead.
    State: file and offset.
    Elements: unknown.

    Example:
        mr.text_line("notes-*.txt")
    """


def tfrecord(
        *files: Paths,
        compression: Literal["", "GZIP", "ZLIB", "ZSTD"] = '',
        num_parallel_reads: int | Auto | None = None,
        record_range: int | Sequence[int] | None = None,
        on_corrupt: Literal["error", "skip"] | None = None,
        max_skipped: int | None = None,
        quarantine: Path | None = None,
        record_compression: Literal["", "ZSTD"] = '',
        dictionary: Path | None = None,
    ) -> Dataset:
    """The records of TFRecord files, checksums verified.

    Args:
        files: Paths, or patterns; several are read in the order given.
        compression: Compression of the files as a whole; empty: none. One of "", "GZIP",
            "ZLIB", "ZSTD".
        num_parallel_reads: Files read at once, a record of each in turn; mr.AUTO: 16; None:
            one.
        record_range: [i, n]: part i of n equal parts of all records together, by the files'
            indexes.
        on_corrupt: Treats a damaged record as an error, or skips to the next valid one. One
            of "error", "skip".
        max_skipped: Maximum number of damaged places to skip in a pass; one more is an
            error.
        quarantine: Folder for skipped bytes, a file for each damaged place.
        record_compression: Compression of each record by itself (write --compress
            zstd-record); empty: none. One of "", "ZSTD".
        dictionary: File of the zstd dictionary; None: PREFIX.dict, for records that name
            one.

    Order: by file, then by record; with num_parallel_reads a record of each file in turn.
    Memory: the current chunk of each open file, and its read-ahead.
    State: file and offset.
    Elements: the number of records if all files have an index, else unknown.

    Example:
        mr.tfrecord("train-*.tfrecord", num_parallel_reads=4)
    """


def zip(*datasets: Dataset) -> Dataset:
    """Combines one element of each input; ends with the shortest.

    Order: of each input kept.
    Memory: a block of each input.
    State: that of its inputs.
    Elements: that of the shortest input.

    Example:
        mr.zip(mr.range(3), mr.range(10, 20))
    """


def distributed_dataset(
        service: str,
        dataset_id: str,
        processing_mode: Literal["exactly_once", "dynamic", "parallel_epochs", "file", "data", "file_or_data", "hint"] = 'exactly_once',
        *,
        job_name: str | None = None,
        streams: int | Auto = 0,
        block_length: int = 1,
        deterministic: bool | None = None,
        consumer_index: int | None = None,
        num_consumers: int | None = None,
        compression: Literal["ZSTD", "auto"] | Auto | None = None,
        max_outstanding_bytes: int | Auto = 0,
        target_workers: Literal["auto", "any", "local"] = 'auto',
        transfer: Literal["auto", "tcp", "shared_memory"] | Auto = 'auto',
        resume: bool = False,
        match: Literal["worker", "client"] = 'worker',
        on_missing: Literal["fail", "move"] = 'fail',
        seed: int | None = None,
        connect_timeout: float = 60.0,
        stall_timeout: float | None = None,
        client_timeout: float = 30.0,
    ) -> Dataset:
    """Reads a dataset that was registered with a data service, as streams of the service.

    Args:
        service: HOST:PORT of the dispatcher; "local": this process, without a server.
        dataset_id: Id that 'millrace service register' printed.
        processing_mode: Delivery guarantee for each element. One of "exactly_once",
            "dynamic", "parallel_epochs", "file", "data", "file_or_data", "hint".
        job_name: Clients with the same name share a job; None: a new job.
        streams: Number of streams that the graph is cut into; mr.AUTO: 8, or the number of
            files if smaller.
        block_length: Number of elements of a stream before the next stream's turn.
        deterministic: Keeps the order; False: blocks come from whichever stream has one.
            Default: True.
        consumer_index: Index of this consumer, from 0.
        num_consumers: Number of consumers that read the job together, each its own streams.
        compression: Compression of blocks on the network; auto: if the link is slower than
            compressing. One of "ZSTD", "auto".
        max_outstanding_bytes: Maximum bytes in transit or waiting here; mr.AUTO: 4 blocks
            of each stream, at least 16 MiB.
        target_workers: Workers to read from; local: only those on this host. One of "auto",
            "any", "local".
        transfer: How blocks are transferred; auto: through shared memory from workers on
            this host. One of "auto", "tcp", "shared_memory".
        resume: Resumes after the elements that were acknowledged under job_name.
        match: Whether workers or the client expand file patterns. One of "worker",
            "client".
        on_missing: If a worker cannot see a file: fail, or move the stream to another
            worker. One of "fail", "move".
        seed: Seed for random ops without one; drawn at random if absent.
        connect_timeout: Seconds to wait for the dispatcher.
        stall_timeout: Seconds without an element after which reading fails; None: it waits.
        client_timeout: Seconds after which a silent client loses its streams.

    Order: an element of each stream in turn.
    Memory: the blocks that the streams have sent ahead.
    State: the position in each stream.
    Elements: the sum over the streams where that is known.

    Example:
        mr.distributed_dataset("127.0.0.1:5050", "d6f1c3a25b7e9480")
    """


SOURCES: tuple[str, ...]
