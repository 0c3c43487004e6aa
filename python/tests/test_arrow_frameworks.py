# SPDX-License-Identifier: Apache-2.0
# tier: plain=long
"""Arrow data from pyarrow, polars and duckdb, and for them: every type and nesting, with nulls at every
place, through from_arrow, Parquet and Arrow files."""

from __future__ import annotations

import datetime
import decimal
import gc
import os
import tempfile
import unittest
from typing import Any

import numpy as np

import kit
import millrace as mr

try:
    import pyarrow as pa
    import pyarrow.ipc  # noqa: F401
    import pyarrow.parquet as pq
except ImportError as e:
    pa = None
    why = f"pyarrow is not installed: {e}"
try:
    import polars as pl
except ImportError:
    pl = None
try:
    import duckdb
except ImportError:
    duckdb = None


def plain(x: Any) -> Any:
    """An element as values of Python."""
    if isinstance(x, mr.Ragged):
        return [plain(r) for r in x]
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    if isinstance(x, np.ndarray):
        return [plain(v) for v in x]
    return x.item() if isinstance(x, np.generic) else x


def as_element(x: Any, t: Any) -> Any:
    """What pyarrow calls x as Millrace gives it: lists of structs are records of lists."""
    if x is None:
        return None
    if pa.types.is_dictionary(t):
        return as_element(x, t.value_type)
    if pa.types.is_struct(t):
        return {f.name: as_element(x[f.name], f.type) for f in t}
    if pa.types.is_map(t):
        return {"key": [as_element(k, t.key_type) for k, _ in x], "value": [as_element(v, t.item_type) for _, v in x]}
    if pa.types.is_nested(t):
        if pa.types.is_struct(t.value_type):
            return None if None in x else {f.name: [as_element(v[f.name], f.type) for v in x] for f in t.value_type}
        return [as_element(v, t.value_type) for v in x]
    return x.encode() if isinstance(x, str) else x


def each_null(x: Any) -> Any:
    """x with one of its parts, or all of it, null."""
    if not isinstance(x, tuple):  # an entry of a map
        yield None
    if isinstance(x, list):
        for i, part in enumerate(x):
            for other in each_null(part):
                yield x[:i] + [other] + x[i + 1 :]
    elif isinstance(x, tuple):
        for other in each_null(x[1]):
            yield x[0], other
    elif isinstance(x, dict):
        for k in x:
            for other in each_null(x[k]):
                yield {**x, k: other}


def has_null(x: Any) -> bool:
    if isinstance(x, dict):
        return any(has_null(v) for v in x.values())
    return any(has_null(v) for v in x) if isinstance(x, list) else x is None


def nested(t: Any, v: list[Any]) -> Any:
    """Types made of t, with three rows of values made of v's three."""
    pairs = pa.list_(t, 2)
    yield "plain", t, v
    yield "list", pa.list_(t), [[v[0]], [], [v[1], v[2]]]
    yield "large_list", pa.large_list(t), [[v[0]], [], [v[1], v[2]]]
    yield "fixed", pairs, [[v[0], v[1]], [v[1], v[2]], [v[2], v[0]]]
    yield "struct", pa.struct([("f", t)]), [{"f": x} for x in v]
    yield "lists", pa.list_(pa.list_(t)), [[[v[0]], []], [], [[v[1], v[2]], [v[0]]]]
    yield "list of fixed", pa.list_(pairs), [[[v[0], v[1]]], [], [[v[1], v[2]], [v[0], v[0]]]]
    yield "fixed of list", pa.list_(pa.list_(t), 2), [[[v[0]], []], [[v[1], v[2]], [v[0]]], [[], []]]
    yield "list of struct", pa.list_(pa.struct([("f", t)])), [[{"f": v[0]}], [], [{"f": v[1]}, {"f": v[2]}]]
    yield "struct of list", pa.struct([("f", pa.list_(t))]), [{"f": [v[0]]}, {"f": []}, {"f": [v[1], v[2]]}]
    yield "map", pa.map_(pa.string(), t), [[("a", v[0])], [], [("b", v[1]), ("c", v[2])]]
    yield "deep", pa.list_(pa.list_(pa.list_(t))), [[[[v[0]]], []], [], [[[v[1], v[2]]], [[v[0], v[1]]]]]


def tables(array: Any) -> Any:
    """Tables with the array as a column c: whole, a slice with an offset, chunks of which one is empty,
    and without a chunk."""

    def table(c: Any) -> Any:
        return pa.table({"c": c, "n": pa.array(range(len(c)), pa.int64())})

    yield table(array)
    yield table(pa.concat_arrays([array, array])).slice(2)
    yield table(pa.chunked_array([array.slice(0, 1), array.slice(1, 0), array.slice(1)]))
    yield table(pa.chunked_array([], type=array.type))


class Reading(unittest.TestCase):
    """One folder for the files."""

    @classmethod
    def setUpClass(cls) -> None:
        if pa is None:
            raise unittest.SkipTest(why)
        cls.folder = tempfile.TemporaryDirectory()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.folder.cleanup()

    def routes(self, table: Any) -> Any:
        yield "from_arrow", lambda: mr.from_arrow(table)
        path = os.path.join(self.folder.name, "x")

        def parquet() -> Any:
            pq.write_table(table, path, row_group_size=2)
            return mr.parquet(path)

        def arrow() -> Any:
            with pa.ipc.new_file(path, table.schema) as w:
                w.write_table(table)
            return mr.arrow(path)

        yield "parquet", parquet
        yield "arrow", arrow

    def read(self, ds: Any) -> tuple[list[Any], dict[int, mr.Error]]:
        """The values of column c, and the errors by record."""
        rows, errors = [], {}
        it = iter(ds)
        while True:
            try:
                rows.append(plain(next(it)["c"]))
            except StopIteration:
                return rows, errors
            except mr.Error as e:
                self.assertIsNotNone(e.record, e)
                errors[e.record] = e

    def check(self, table: Any, t: Any) -> int:
        """Each way to read the table gives the rows without nulls, and an error for each of the others, which
        names the column and the row. Returns how many ways there were: a type may be refused, by name."""
        want = [as_element(x, t) for x in table.column("c").to_pylist()]
        good = [x for x in want if not has_null(x)]
        bad = [i for i, x in enumerate(want) if has_null(x)]
        ways = 0
        for name, make in self.routes(table):
            with self.subTest(name=name, type=str(t), rows=want):
                try:
                    ds = make()
                    ds.element_spec
                except mr.Error as e:
                    self.assertRegex(str(e), "'[cf]'")
                    continue
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                    continue  # pyarrow cannot write it
                rows, errors = self.read(ds)
                self.assertEqual(rows, good)
                self.assertEqual(sorted(errors), bad)
                for e in errors.values():
                    self.assertIsInstance(e, mr.InvalidArgument)
                    self.assertRegex(str(e), r"column 'c(\.f|\.key|\.value)?'.*null")
                ways += 1
        return ways


class Nulls(Reading):
    def hostile(self, *types: Any) -> None:
        for t, values in types:
            for _, kind, rows in nested(t, values):
                for i in (1, 2):
                    for row in each_null(rows[i]):
                        array = pa.array(rows[:i] + [row] + rows[i + 1 :], kind)
                        for table in tables(array):
                            self.check(table, kind)
                for table in tables(pa.array(rows, kind)):
                    self.check(table, kind)

    def test_numbers(self) -> None:
        self.hostile((pa.int32(), [1, -2, 3]), (pa.float64(), [1.5, 2.5, 3.5]), (pa.bool_(), [True, False, True]))

    def test_strings(self) -> None:
        long_one = "c" * 40
        self.hostile(
            (pa.string(), ["a", "", long_one]),
            (pa.large_binary(), [b"a", b"", b"\xff"]),
            (pa.string_view(), ["a", "", long_one]),
            (pa.binary(2), [b"ab", b"cd", b"ef"]),
        )

    def test_dictionaries(self) -> None:
        self.hostile((pa.dictionary(pa.int8(), pa.string()), ["a", "b", "a"]))
        self.hostile((pa.dictionary(pa.uint16(), pa.int64()), [5, 6, 5]))

    def test_a_null_may_be_in_the_dictionary(self) -> None:
        for values in (pa.array(["a", None, "b"]), pa.array([1, None, 3]), pa.array(["a", None], pa.string_view())):
            for index in ([0, 1, 0], [0, 0, 0], [None, 0, 1]):
                array = pa.DictionaryArray.from_arrays(pa.array(index, pa.int32()), values)
                self.check(pa.table({"c": array}), array.type)
        nothing = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int32()), pa.array([], pa.string()))
        self.check(pa.table({"c": nothing}), nothing.type)

    def test_nulls_outside_of_a_slice_do_not_count(self) -> None:
        for t, values in ((pa.int64(), [None, 1, 2, None]), (pa.list_(pa.int64()), [[None], [1], [2, 3], None])):
            table = pa.table({"c": pa.array(values, t)}).slice(1, 2)
            rows, errors = self.read(mr.from_arrow(table))
            self.assertEqual((rows, errors), (values[1:3], {}))

    def test_many_nulls_are_skipped(self) -> None:
        values = [None if i % 3 else i for i in range(10000)]
        table = pa.table({"c": pa.chunked_array([pa.array(values[:7000]), pa.array(values[7000:])])})
        for _, make in self.routes(table):
            self.assertEqual([int(x["c"]) for x in make().ignore_errors()], list(range(0, 10000, 3)))

    def test_columns_of_nulls_are_refused_or_errors(self) -> None:
        table = pa.table({"c": pa.nulls(3)})
        for _, make in self.routes(table):
            with self.assertRaisesRegex(mr.InvalidArgument, "'c'"):
                list(make())

    def test_lists_of_three_levels_have_equal_lengths(self) -> None:
        rows = [[[[1, 2], [3, 4]]], [[[1], [2, 3]]], [[[5], [6]]]]
        table = pa.table({"c": pa.array(rows)})
        for name, make in self.routes(table):
            with self.subTest(name):
                got, errors = self.read(make())
                self.assertEqual((got, list(errors)), ([rows[0], rows[2]], [1]))
                self.assertIn("'c'", str(errors[1]))

    def test_defaults_replace_nulls(self) -> None:
        table = pa.table({"c": pa.array([1, None, 3]), "s": pa.array(["a", None, "c"])})
        path = os.path.join(self.folder.name, "defaults")
        pq.write_table(table, path)
        ds = mr.parquet(path, schema={"c": mr.fn.feature(mr.int64, default=-1), "s": mr.fn.feature(mr.bytes, default="?")})
        self.assertEqual([(x["c"], x["s"]) for x in ds], [(1, b"a"), (-1, b"?"), (3, b"c")])


class Types(Reading):
    def test_times_are_their_integers(self) -> None:
        day = datetime.datetime(2021, 5, 6, 7, 8, 9)
        for t, values in (
            (pa.date32(), [day.date()] * 2),
            (pa.date64(), [day.date()] * 2),
            (pa.timestamp("s"), [day] * 2),
            (pa.timestamp("us", "UTC"), [day] * 2),
            (pa.timestamp("ns"), [day] * 2),
            (pa.time32("ms"), [day.time()] * 2),
            (pa.time64("us"), [day.time()] * 2),
            (pa.duration("us"), [datetime.timedelta(1)] * 2),
        ):
            array = pa.array(values, t)
            want = array.cast(pa.int32() if t.bit_width == 32 else pa.int64()).to_pylist()
            for name, make in self.routes(pa.table({"c": array})):
                if name == "parquet" and t in (pa.timestamp("s"), pa.date64()):
                    continue  # pyarrow stores milliseconds and days
                with self.subTest(name=name, type=str(t)):
                    self.assertEqual(self.read(make()), (want, {}))

    def test_decimals_are_refused_by_name(self) -> None:
        table = pa.table({"ok": [1], "c": pa.array([decimal.Decimal("1.23")], pa.decimal128(10, 2))})
        for name, make in self.routes(table):
            with self.subTest(name), self.assertRaisesRegex(mr.InvalidArgument, "'c'"):
                list(make())

    def test_empty_row_groups_and_tables(self) -> None:
        path = os.path.join(self.folder.name, "empty")
        schema = pa.schema([("c", pa.list_(pa.string()))])
        some = pa.table({"c": [["a"], []]}, schema=schema)
        with pq.ParquetWriter(path, schema) as w:
            for table in (some.slice(0, 0), some, some.slice(2), some):
                w.write_table(table)
        self.assertEqual(self.read(mr.parquet(path)), ([[b"a"], [], [b"a"], []], {}))
        with pa.ipc.new_stream(path, schema) as w:
            for batch in (some.slice(0, 0), some, some.slice(2), some):
                for b in batch.to_batches() or [pa.record_batch([pa.array([], schema[0].type)], schema=schema)]:
                    w.write_batch(b)
        self.assertEqual(self.read(mr.arrow(path)), ([[b"a"], [], [b"a"], []], {}))
        self.assertEqual(self.read(mr.from_arrow(schema.empty_table())), ([], {}))

    def test_unsigned_and_small_numbers(self) -> None:
        for t in (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float32()):
            top = 255 if t == pa.uint8() else 2**63 + 1 if t == pa.uint64() else 2**31 + 7 if t == pa.uint32() else 100
            table = pa.table({"c": pa.array([0, 1, top], t)})
            self.assertEqual(self.check(table, t), 3)
        table = pa.table({"c": pa.array([np.float16(0.5), None], pa.float16())})
        rows, errors = self.read(mr.from_arrow(table))
        self.assertEqual((rows, list(errors)), ([0.5], [1]))


@unittest.skipIf(pa is None, why if pa is None else "")
class Elements(unittest.TestCase):
    graph = 'range(6).map(x => {"a": x, "m": zeros([2, 3]) + cast(x, "float32"), "s": ["p", "qr"], "t": "u", "v": ones([x])})'

    def test_the_format_arrow(self) -> None:
        x = list(mr.from_text(self.graph).iterator(format="arrow"))[2]
        self.assertEqual((type(x["a"]), x["a"].as_py()), (pa.Int64Scalar, 2))
        self.assertEqual((x["m"].type.list_size, x["m"].to_pylist()), (3, [[2, 2, 2]] * 2))
        self.assertEqual((x["s"].type, x["s"].to_pylist()), (pa.large_binary(), [b"p", b"qr"]))
        self.assertEqual((x["t"].type, x["t"].as_py()), (pa.large_binary(), b"u"))
        self.assertEqual(x["v"].to_pylist(), [1, 1])
        x = next(mr.from_text(self.graph).iterator(format="arrow", strings="str"))
        self.assertEqual((x["s"].type, x["t"].as_py()), (pa.large_string(), "u"))
        self.assertEqual(x["v"].to_pylist(), [])

    def test_batches_have_one_type(self) -> None:
        ds = mr.from_text(self.graph).ragged_batch(4)
        batches = [pa.RecordBatch.from_pydict(b) for b in ds.iterator(format="arrow")]
        table = pa.Table.from_batches(batches)
        self.assertEqual(table.num_rows, 6)
        self.assertEqual(table.column("v").to_pylist(), [[1] * i for i in range(6)])
        self.assertEqual(table.column("s").to_pylist(), [[b"p", b"qr"]] * 6)
        padded = mr.from_text("range(6).map(x => ones([x])).padded_batch(2)")
        self.assertEqual({x.type for x in padded.iterator(format="arrow")}, {pa.large_list(pa.field("item", pa.float32(), False))})

    def test_strings_alone(self) -> None:
        x = next(mr.from_text(self.graph).iterator(strings="arrow"))
        self.assertIsInstance(x["m"], np.ndarray)
        self.assertIsInstance(x["a"], np.int64)
        self.assertEqual((x["s"].type, x["s"].to_pylist(), x["t"].as_py()), (pa.large_binary(), [b"p", b"qr"], b"u"))
        (x,) = mr.from_tensor_slices(["a", "b", ""]).batch(3).iterator(strings="arrow")
        self.assertEqual(x.to_pylist(), [b"a", b"b", b""])

    def test_arrays_are_views_that_live_on(self) -> None:
        kept = list(mr.range(1000).batch(100).iterator(format="arrow"))
        for _ in range(5):
            list(mr.range(1000, 2000).batch(100))
        gc.collect()
        got = np.concatenate([x.to_numpy(zero_copy_only=True) for x in kept])
        np.testing.assert_array_equal(got, np.arange(1000))

    def test_what_arrow_has_no_type_for(self) -> None:
        with self.assertRaisesRegex(mr.InvalidArgument, "bfloat16"):
            next(mr.range(3).map(lambda x: mr.fn.cast(x, "bfloat16")).iterator(format="arrow"))
        with self.assertRaises(pa.ArrowInvalid):
            next(mr.from_tensors(b"\xff").iterator(format="arrow", strings="str"))
        (w,) = mr.range(2).window(2).iterator(format="arrow")
        self.assertIsInstance(w, mr.Dataset)

    def test_ragged_columns_to_arrow(self) -> None:
        def of(values: Any, splits: list[int]) -> Any:
            return mr.Ragged(np.asarray(values), np.asarray(splits)).to_arrow()

        self.assertEqual(of([1, 2, 3], [0, 2, 2, 3]).to_pylist(), [[1, 2], [], [3]])
        self.assertEqual(of(np.arange(8).reshape(2, 2, 2), [0, 1, 2]).to_pylist(), [[[[0, 1], [2, 3]]], [[[4, 5], [6, 7]]]])
        self.assertEqual(of(np.zeros((3, 0, 2)), [0, 1, 3]).to_pylist(), [[[]], [[], []]])
        self.assertEqual(of([True, False], [0, 0, 2]).to_pylist(), [[], [True, False]])
        self.assertEqual(of(np.array([b"a", b"\xff"], object), [0, 1, 2]).type.value_type, pa.large_binary())
        self.assertEqual(of(np.array(["a", "é"], object), [0, 1, 2]).to_pylist(), [["a"], ["é"]])
        (r,) = mr.range(3).map(lambda x: mr.fn.ones([x])).ragged_batch(3)
        self.assertEqual(r.to_arrow().to_pylist(), r.to_list())


@unittest.skipIf(pa is None, why if pa is None else "")
class Consumers(unittest.TestCase):
    rows = [{"n": i, "s": f"row {i}", "v": [1.0] * (i % 4)} for i in range(50)]

    def dataset(self) -> Any:
        """Arrays that can be read again."""
        return mr.range(50).map(lambda n: {"n": n, "s": mr.fn.format("row {}", n), "v": mr.fn.ones([n % 4])})

    def test_pyarrow(self) -> None:
        ds = self.dataset()
        for _ in range(2):
            table = pa.table(ds)
            self.assertEqual(table.column("n").to_pylist(), [r["n"] for r in self.rows])
            self.assertEqual([s.decode() for s in table.column("s").to_pylist()], [r["s"] for r in self.rows])
            self.assertEqual(table.column("v").to_pylist(), [r["v"] for r in self.rows])
        once = mr.from_arrow(table).skip(48)
        self.assertEqual(pa.RecordBatchReader.from_stream(once).schema.names, ["n", "s", "v"])
        self.assertEqual(pa.table(once).column("n").to_pylist(), [48, 49])
        with self.assertRaisesRegex(Exception, "cache"):
            pa.table(once)
        reader = pa.RecordBatchReader.from_stream(ds)
        self.assertEqual(reader.read_next_batch().column("n")[0].as_py(), 0)
        del reader
        self.assertEqual(pa.table(mr.range(3)).to_pydict(), {"value": [0, 1, 2]})
        self.assertEqual(pa.table(mr.range(3).take(0)).num_rows, 0)

    def test_what_stops_a_stream_is_said(self) -> None:
        ds = mr.range(5).map(lambda x: {"a": 10 // (x - 3)})
        with self.assertRaisesRegex(Exception, "zero"):
            pa.table(ds)
        with self.assertRaisesRegex(mr.InvalidArgument, "dataset"):
            pa.table(mr.range(5).window(2))

    @unittest.skipIf(pl is None, "polars is not installed")
    def test_polars(self) -> None:
        frame = pl.DataFrame(self.dataset())
        self.assertEqual(frame["n"].to_list(), [r["n"] for r in self.rows])
        self.assertEqual(frame["v"].to_list(), [r["v"] for r in self.rows])
        self.assertEqual([s.decode() for s in frame["s"].to_list()], [r["s"] for r in self.rows])
        back = list(mr.from_arrow(pl.DataFrame(self.rows)))
        self.assertEqual([plain(x) for x in back], [{**r, "s": r["s"].encode()} for r in self.rows])
        kinds = pl.Series(["a", "b", "a"], dtype=pl.Categorical)
        names = pl.Series([["x"], ["y" * 30, "z"], []])
        back = list(mr.from_arrow(pl.DataFrame({"c": kinds, "l": names})))
        self.assertEqual([x["c"] for x in back], [b"a", b"b", b"a"])
        self.assertEqual([x["l"].tolist() for x in back], [[b"x"], [b"y" * 30, b"z"], []])
        it = iter(mr.from_arrow(pl.DataFrame({"c": ["a", None, "b"]})))
        self.assertEqual(next(it)["c"], b"a")
        with self.assertRaisesRegex(mr.InvalidArgument, "column 'c'") as caught:
            next(it)
        self.assertEqual((caught.exception.record, next(it)["c"]), (1, b"b"))

    @unittest.skipIf(duckdb is None, "duckdb is not installed")
    def test_duckdb(self) -> None:
        ds = self.dataset()  # noqa: F841 (the query names it)
        self.assertEqual(duckdb.sql("select sum(n), count(*) from ds").fetchall(), [(sum(range(50)), 50)])
        self.assertEqual(duckdb.sql("select n from ds where len(v) = 3 order by n limit 2").fetchall(), [(3,), (7,)])
        result = duckdb.sql("select range as r, [range, 1] as l, 'x' || range as s from range(4)")
        back = [plain(x) for x in mr.from_arrow(result)]
        self.assertEqual(back, [{"r": i, "l": [i, 1], "s": f"x{i}".encode()} for i in range(4)])
        nothing = duckdb.sql("select case when range = 1 then null else range end as c from range(3)")
        with self.assertRaisesRegex(mr.InvalidArgument, "column 'c'") as caught:
            list(mr.from_arrow(nothing))
        self.assertEqual(caught.exception.record, 1)


if __name__ == "__main__":
    kit.main()
