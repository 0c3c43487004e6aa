# SPDX-License-Identifier: Apache-2.0
# tier: plain=quick asan=full
"""Iterators: what elements are made of, epochs, positions, options, statistics."""

from __future__ import annotations

import copy
import json
import os
import pathlib
import pickle
import subprocess
import tempfile
import threading
import unittest
from typing import Any

import numpy as np

import kit
import millrace as mr
from millrace._trail import Trail  # the positions of loaders


class Elements(unittest.TestCase):
    def test_structure_is_kept(self) -> None:
        ds = mr.from_text('range(2).map(x => (x, {"b": [x, x * 2], "a": "s"}, cast(x, "float16")))')
        x = list(ds)[1]
        self.assertIsInstance(x, tuple)
        self.assertEqual(x[0], 1)
        self.assertIsInstance(x[0], np.int64)
        self.assertEqual(list(x[1]), ["a", "b"])
        np.testing.assert_array_equal(x[1]["b"], [1, 2])
        self.assertEqual(x[1]["a"], b"s")
        self.assertEqual(x[2].dtype, np.float16)

    def test_every_type_arrives_as_itself(self) -> None:
        for t in "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split():
            ds = mr.from_text(f'from_tensor_slices([0, 1, 1]).map(x => cast(x, "{t}")).batch(3)')
            (x,) = ds
            self.assertEqual(x.dtype, np.dtype(t))
            self.assertEqual(ds.element_spec, mr.TensorSpec((None,), t))
            np.testing.assert_array_equal(x, np.array([0, 1, 1], t))
            self.assertEqual(type(next(iter(ds.unbatch()))), np.dtype(t).type)

    def test_bfloat16_keeps_its_values(self) -> None:
        (x,) = mr.range(3).map(lambda x: mr.fn.cast(x, "bfloat16") / 2).batch(3)
        np.testing.assert_array_equal(np.asarray(x, np.float32), [0, 0.5, 1])

    def test_strings_are_bytes_or_str(self) -> None:
        ds = mr.from_tensor_slices(["é", "", "b"]).batch(3)
        (x,) = ds
        self.assertEqual(x.dtype, object)
        self.assertEqual(x.tolist(), ["é".encode(), b"", b"b"])
        (x,) = ds.iterator(strings="str")
        self.assertEqual(x.tolist(), ["é", "", "b"])
        with self.assertRaises(UnicodeDecodeError):
            next(mr.from_tensors(b"\xff").iterator(strings="str"))

    def test_ragged_columns_are_ragged(self) -> None:
        (x,) = mr.range(4).map(lambda n: mr.fn.ones([n])).ragged_batch(4)
        self.assertIsInstance(x, mr.Ragged)
        self.assertEqual(x.to_list(), [[], [1.0], [1.0] * 2, [1.0] * 3])
        self.assertEqual(x.shape, (4, None))
        self.assertEqual([len(r) for r in x], [0, 1, 2, 3])
        np.testing.assert_array_equal(x[-1], np.ones(3, np.float32))
        # Rows that happen to be equally long are Ragged all the same.
        (x,) = mr.range(2).map(lambda n: mr.fn.ones([n - n + 2])).ragged_batch(2)
        self.assertIsInstance(x, mr.Ragged)
        self.assertEqual(x.to_list(), [[1.0, 1.0]] * 2)
        (x,) = mr.from_tensor_slices(["a b", "c"]).map(lambda s: mr.fn.split(s)).ragged_batch(2)
        self.assertEqual(x.to_list(), [[b"a", b"b"], [b"c"]])

    def test_empty_tensors_and_no_elements(self) -> None:
        self.assertEqual(list(mr.range(0)), [])
        (x,) = mr.from_text("from_tensors(zeros([0, 3]))")
        self.assertEqual(x.shape, (0, 3))
        self.assertEqual([len(x) for x in mr.range(3).map(lambda n: mr.fn.zeros([n]))], [0, 1, 2])
        (x,) = mr.from_tensors(np.array([], dtype=object)).map(lambda s: s)
        self.assertEqual((x.shape, x.dtype), ((0,), np.dtype(object)))

    def test_elements_may_be_datasets(self) -> None:
        windows = list(mr.range(5).window(2))
        self.assertEqual([list(w) for w in windows], [[0, 1], [2, 3], [4]])
        self.assertIsInstance(windows[0], mr.Dataset)

    def test_the_last_array_of_lent_memory_may_go_with_an_exception(self) -> None:
        with self.assertRaisesRegex(ValueError, "read-only"):
            next(iter(mr.from_tensor_slices(np.arange(4)).batch(2)))[0] = 5

    def test_memory_is_writable_only_when_it_is_not_shared(self) -> None:
        shared = mr.range(4).map(lambda x: mr.fn.zeros([3]) + 1.0).cache()
        for x in shared:  # the cache copies what it keeps, and the rest is the consumer's
            if x.flags.writeable:
                x.fill(9)
        for _ in range(2):
            for x in shared:
                self.assertFalse(x.flags.writeable)
                np.testing.assert_array_equal(x, np.ones(3))
        (x,) = mr.from_tensors(np.arange(100.0))
        self.assertFalse(x.flags.writeable)
        for x in mr.range(4).batch(2):
            self.assertTrue(x.flags.writeable)
            x += 1
        a, b = next(iter(mr.range(4).batch(4).map(lambda x: (x, x))))
        self.assertFalse(a.flags.writeable or b.flags.writeable)

    def test_writing_an_element_changes_no_other(self) -> None:
        ds = mr.range(8).batch(4).cache()
        for _ in range(3):
            for x, want in zip(ds, ([0, 1, 2, 3], [4, 5, 6, 7]), strict=True):
                np.testing.assert_array_equal(x, want)
                if x.flags.writeable:
                    x[:] = -1
        ds = mr.range(4).map(lambda n: mr.fn.ones([n])).shuffle(2, seed=1).repeat(3)
        for x in ds:
            np.testing.assert_array_equal(x, np.ones(len(x)))
            if x.flags.writeable:
                x[:] = 9

    def test_arrays_outlive_iterators_and_datasets(self) -> None:
        def make() -> list[np.ndarray[Any, Any]]:
            ds = mr.from_tensor_slices(np.arange(1000).reshape(100, 10)).map(lambda x: x + 1).batch(7)
            return list(ds)

        arrays = make()
        for _ in range(20):
            list(mr.range(1000).batch(10))
        np.testing.assert_array_equal(np.concatenate(arrays), np.arange(1000).reshape(100, 10) + 1)

    def test_unknown_formats_are_refused(self) -> None:
        with self.assertRaisesRegex(ValueError, "'numpy', 'torch'"):
            mr.range(3).iterator(format="pandas")
        with self.assertRaisesRegex(ValueError, "'bytes', 'str'"):
            mr.range(3).iterator(strings="text")


    def test_arrow_streams_are_the_first_epoch_and_count_as_none(self) -> None:
        ds = mr.range(6).shuffle(6, seed=5).cache().shuffle(6, seed=6)
        epochs = [list(e) for e in (ds, ds, ds)]
        ds = mr.from_text(str(ds))
        got: list[Any] = []
        for _ in range(2):
            got += [[row["value"] for row in mr.from_arrow(ds)], list(ds)]
        self.assertEqual(got, [epochs[0], epochs[0], epochs[0], epochs[1]])

    def test_slices_of_ragged_rows(self) -> None:
        rows = [[0], [], [1, 2], [3]]
        r = mr.Ragged(np.arange(4), np.array([0, 1, 1, 3, 4]))
        for part in (slice(None), slice(1, 3), slice(2, 1), slice(-1, None), slice(9, None), slice(None, -2)):
            self.assertEqual(r[part].to_list(), rows[part])
            self.assertEqual(int(r[part].row_splits[0]), 0)
        with self.assertRaisesRegex(ValueError, "steps of 1"):
            r[::2]


class Epochs(unittest.TestCase):
    def test_each_iterator_is_the_next_epoch(self) -> None:
        ds = mr.range(20).shuffle(20, seed=3)
        epochs = [[int(x) for x in ds] for _ in range(3)]
        self.assertEqual(len({tuple(e) for e in epochs}), 3)
        out = subprocess.run(
            [kit.MILLRACE, "show", "--epochs", "3", str(ds)], capture_output=True, text=True, check=True
        ).stdout.split()
        self.assertEqual([str(x) for e in epochs for x in e], out)

    def test_another_object_begins_again(self) -> None:
        a, b = mr.range(20).shuffle(20, seed=3), mr.range(20).shuffle(20, seed=3)
        self.assertEqual(list(a), list(b))

    def test_iterators_at_the_same_time_are_epochs_too(self) -> None:
        ds = mr.range(20).shuffle(20, seed=3)
        whole = mr.range(20).shuffle(20, seed=3)
        want = [list(whole) for _ in range(3)]
        first, second, third = iter(ds), iter(ds), iter(ds)
        got: list[list[Any]] = [[], [], []]
        for _ in range(20):
            for i in (1, 0, 2):
                got[i].append(next((first, second, third)[i]))
        self.assertEqual(got, want)

    def test_epochs_that_end_early_count(self) -> None:
        whole = mr.range(20).shuffle(20, seed=3)
        want = [list(whole) for _ in range(3)]
        ds = mr.range(20).shuffle(20, seed=3)
        for _x in ds:
            break
        self.assertEqual(list(ds), want[1])

    def test_a_cache_lasts_from_epoch_to_epoch(self) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as f:
            f.write("a\nb\n")
        ds = mr.text_line(f.name).cache()
        self.assertEqual(list(ds), [b"a", b"b"])
        os.unlink(f.name)
        self.assertEqual(list(ds), [b"a", b"b"])
        self.assertEqual(list(ds), [b"a", b"b"])

    def test_unseeded_orders_differ(self) -> None:
        ds = mr.range(50).shuffle(50)
        self.assertNotEqual(list(ds), list(ds))
        a = list(mr.range(50).shuffle(50).iterator(seed=1))
        self.assertEqual(a, list(mr.range(50).shuffle(50).iterator(seed=1)))
        self.assertNotEqual(a, list(mr.range(50).shuffle(50).iterator(seed=2)))


class Positions(unittest.TestCase):
    graph = "range(30).shuffle(7, seed=2).map(x => x * 2).batch(4).prefetch(2)"

    def test_a_position_continues_everywhere(self) -> None:
        whole = [x.tolist() for x in mr.from_text(self.graph)]
        for n in range(len(whole) + 1):
            it = iter(mr.from_text(self.graph))
            head = [next(it).tolist() for _ in range(n)]
            state = json.loads(json.dumps(it.state_dict()))
            self.assertEqual(set(state), {"version", "graph", "position"})
            self.assertEqual(state["graph"], str(mr.from_text(self.graph)))
            again = mr.from_text(self.graph).iterator(threads=n % 3)
            again.load_state_dict(state)
            self.assertEqual(head + [x.tolist() for x in again], whole)

    def test_a_restored_iterator_is_in_its_epoch(self) -> None:
        ds = mr.from_text(self.graph)
        epochs = [[x.tolist() for x in ds] for _ in range(2)]
        it = iter(ds)  # the third
        third = [next(it).tolist() for _ in range(3)]
        state = it.state_dict()
        third += [x.tolist() for x in it]
        fourth = [x.tolist() for x in ds]
        other = mr.from_text(self.graph)
        it = iter(other)
        it.load_state_dict(state)
        self.assertEqual([x.tolist() for x in it], third[3:])
        self.assertEqual([x.tolist() for x in other], fourth)
        self.assertEqual(len({str(e) for e in [*epochs, third, fourth]}), 4)

    def test_going_back_in_the_same_iterator(self) -> None:
        it = iter(mr.range(10))
        next(it)
        state = it.state_dict()
        rest = list(it)
        it.load_state_dict(state)
        self.assertEqual(list(it), rest)
        self.assertEqual(next(it, "end"), "end")

    def test_the_position_of_the_end_and_of_the_beginning(self) -> None:
        ds = mr.range(3)
        it = iter(ds)
        begin = it.state_dict()
        list(it)
        end = it.state_dict()
        other = iter(mr.range(3))
        other.load_state_dict(end)
        self.assertEqual(list(other), [])
        other.load_state_dict(begin)
        self.assertEqual(list(other), [0, 1, 2])

    def test_an_ended_iterator_keeps_its_position_when_the_next_one_begins(self) -> None:
        ds = mr.range(10).shuffle(5, seed=1)
        it = iter(ds)
        list(it)
        second = list(ds)
        other = mr.range(10).shuffle(5, seed=1)
        again = iter(other)
        again.load_state_dict(it.state_dict())
        self.assertEqual(list(again), [])
        self.assertEqual(list(other), second)

    def test_wrong_positions_are_refused(self) -> None:
        state = iter(mr.range(10)).state_dict()
        with self.assertRaisesRegex(mr.InvalidArgument, "another graph"):
            iter(mr.range(11)).load_state_dict(state)
        for wrong in (None, {}, {"version": 2, "position": "0:"}, {**state, "position": "x"}, {**state, "position": "0:AAAA"}):
            with self.assertRaises(mr.InvalidArgument):
                iter(mr.range(10)).load_state_dict(wrong)  # type: ignore[arg-type]
        it = iter(mr.range(10))
        with self.assertRaises(mr.InvalidArgument):
            it.load_state_dict({**state, "position": "0:AAAA"})

    def test_positions_of_graphs_with_arrays(self) -> None:
        a = np.arange(1000.0)
        ds = mr.from_tensor_slices(a).batch(10)
        it = iter(ds)
        next(it)
        other = iter(pickle.loads(pickle.dumps(ds)))
        other.load_state_dict(it.state_dict())
        np.testing.assert_array_equal(next(other), a[10:20])


    def test_epochs_of_damaged_positions_are_refused(self) -> None:
        ds = mr.range(3)
        state = iter(ds).state_dict()
        data = state["position"].partition(":")[2]
        for epoch in ("-1", "99999999999999999999", str(1 << 31), "", "x"):
            with self.assertRaisesRegex(mr.InvalidArgument, "the position is damaged"):
                iter(ds).load_state_dict({**state, "position": f"{epoch}:{data}"})
        self.assertEqual(list(ds), [0, 1, 2])


class Using(unittest.TestCase):
    def test_with_closes(self) -> None:
        with mr.range(10).iterator() as it:
            next(it)
        self.assertEqual(list(it), [])
        with self.assertRaises(mr.FailedPrecondition):
            it.state_dict()
        it.close()

    def test_statistics_are_of_this_iterator(self) -> None:
        ds = mr.range(100).batch(10)
        for _ in range(2):
            it = iter(ds)
            self.assertEqual(len(it.stats()), 0)
            list(it)
            stats = it.stats()
            self.assertEqual([(o.path, o.elements) for o in stats], [("batch", 10), ("batch/range", 100)])
            self.assertIn("batch/range", str(stats))
            self.assertIn("<table>", stats._repr_html_())
            it.close()
            self.assertEqual(it.stats()[0].elements, 10)

    def test_traces_are_written(self) -> None:
        it = iter(mr.range(1000).map(lambda x: x + 1).batch(10))
        list(it)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "t.json")
            it.trace(path)
            with open(path) as f:
                events = json.load(f)["traceEvents"]
        self.assertIn("map", {e["name"] for e in events})
        self.assertTrue(all(e["dur"] >= 0 for e in events))

    def test_ledgers_name_the_records(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "l")
            with mr.range(6).batch(2).iterator(ledger=path) as it:
                list(it)
            out = subprocess.run([kit.MILLRACE, "why", path, "--element", "1"], capture_output=True, text=True)
            self.assertEqual(out.returncode, 0, out.stderr)
            self.assertEqual([r["ordinal"] for r in json.loads(out.stdout)["records"]], [2, 3])

    def test_memory_limits(self) -> None:
        with self.assertRaises((mr.InvalidArgument, mr.ResourceExhausted)):
            next(mr.range(10).iterator(memory_limit=1000))
        self.assertEqual(len(list(mr.range(10).iterator(memory_limit="8G"))), 10)
        with self.assertRaisesRegex(mr.InvalidArgument, "512M"):
            mr.range(10).iterator(memory_limit="much")

    def test_threads_do_not_change_elements(self) -> None:
        ds = mr.range(200).map(lambda x: x * x, num_parallel_calls=4).shuffle(9, seed=1).batch(7)
        want = [x.tolist() for x in ds.iterator(threads=0)]
        for n in (1, 4):
            again = mr.from_text(str(ds))
            self.assertEqual([x.tolist() for x in again.iterator(threads=n)], want)
        with self.assertRaises(TypeError):
            ds.iterator(threads="two")  # type: ignore[arg-type]
        with self.assertRaises(mr.InvalidArgument):
            next(ds.iterator(threads=-1))

    def test_two_threads_share_an_iterator(self) -> None:
        it = iter(mr.range(2000))
        got: list[list[int]] = [[], []]

        def take(i: int) -> None:
            for x in it:
                got[i].append(int(x))

        workers = [threading.Thread(target=take, args=(i,)) for i in range(2)]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        self.assertEqual(sorted(got[0] + got[1]), list(range(2000)))

    def test_iterators_are_not_pickled(self) -> None:
        with self.assertRaisesRegex(TypeError, "state_dict"):
            pickle.dumps(iter(mr.range(3)))
        with self.assertRaises(TypeError):
            copy.copy(iter(mr.range(3)))

    def test_closing_ends_a_wait_in_another_thread(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            fifo = os.path.join(folder, "fifo")
            os.mkfifo(fifo)
            keep = os.open(fifo, os.O_RDWR)
            it = iter(mr.text_line(fifo))
            raised: list[BaseException] = []

            def wait() -> None:
                try:
                    next(it)
                except BaseException as e:
                    raised.append(e)

            waiter = threading.Thread(target=wait)
            waiter.start()
            threading.Event().wait(0.2)
            it.close()
            waiter.join(20)
            self.assertFalse(waiter.is_alive())
            os.close(keep)
            self.assertIsInstance(raised[0], (mr.Cancelled, StopIteration))


class Structures(unittest.TestCase):
    def test_zip_of_tuples_and_dicts_of_datasets(self) -> None:
        a, b = mr.range(3), mr.range(10, 20)
        self.assertEqual(mr.zip(a, b), mr.zip((a, b)))
        self.assertEqual(str(mr.zip(a, b)), "zip(range(3), range(10, 20))")
        self.assertEqual(list(mr.zip({"x": a, "y": (b, a)}))[2], {"x": 2, "y": (12, 2)})
        self.assertEqual(len(list(mr.range(3).flat_map(lambda n: mr.zip({"x": mr.range(n), "y": b})))), 3)
        with self.assertRaisesRegex(TypeError, "expected a dataset, not int"):
            mr.zip({"x": a, "y": 3})


class Progress(unittest.TestCase):
    def test_elements_and_positions_are_those_of_an_iterator(self) -> None:
        ds = mr.range(6)
        with ds.iterator(progress=True) as it:
            self.assertEqual([next(it), next(it)], [0, 1])
            state = it.state_dict()
        again = mr.progress(ds)
        again.load_state_dict(state)
        self.assertEqual(list(again), [2, 3, 4, 5])


class Arguments(unittest.TestCase):
    def test_a_path_is_one_file_and_a_str_a_pattern(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path, other = pathlib.Path(folder, "a[1]"), pathlib.Path(folder, "a1")
            other.write_text("a1")
            for names in (path, [path]):
                with self.assertRaises(mr.NotFound):
                    list(mr.text_line(names))
            self.assertEqual(list(mr.text_line(str(path))), [b"a1"])
            path.write_text("a[1]")
            for names in (path, [path]):
                self.assertEqual(list(mr.text_line(names)), [b"a[1]"])

    def test_masked_values_are_refused_everywhere(self) -> None:
        masked = np.ma.array([1, 2], mask=[False, True])
        whole = np.ma.array([1, 2])
        builds: list[Any] = [
            lambda a: mr.from_tensors(a),
            lambda a: mr.from_tensors([a]),
            lambda a: mr.from_tensor_slices((a, a)),
            lambda a: mr.range(2).map(lambda x: x + a),
            lambda a: mr.range(2).map(lambda x: mr.fn.gather(a, x)),
            lambda a: mr.range(2).map_py(lambda x: a),
            lambda a: mr.range(2).map_py(lambda x: {"a": [a]}),
            lambda a: mr.from_generator(lambda: iter([a])),
            lambda a: mr.from_sequence([a]),
        ]
        for i, build in enumerate(builds):
            with self.subTest(i):
                self.assertGreater(len(list(build(whole))), 0)
                with self.assertRaisesRegex((TypeError, mr.InvalidArgument), "masked values"):
                    list(build(masked))

    def test_limits_of_memory_that_are_none(self) -> None:
        for limit in ("x", "2 G", -1, 1 << 80, "99999999999T", 1.5):
            with self.assertRaises(mr.InvalidArgument):
                next(mr.range(3).iterator(memory_limit=limit))  # type: ignore[arg-type]

    def test_errors_name_the_op_and_what_it_takes(self) -> None:
        with self.assertRaisesRegex(TypeError, "^shuffle: .*'buffer_size'; it takes buffer_size, seed"):
            mr.range(3).shuffle()  # type: ignore[call-arg]
        with self.assertRaisesRegex(TypeError, "^shuffle: .*'sed'; did you mean seed"):
            mr.range(3).shuffle(3, sed=1)  # type: ignore[call-arg]
        with self.assertRaisesRegex(TypeError, "^shuffle: .*'buffersize'; did you mean buffer_size"):
            mr.range(3).shuffle(buffersize=1)  # type: ignore[call-arg]

    def test_errors_say_what_to_do_instead(self) -> None:
        ds: Any = mr.range(3)
        with self.assertRaisesRegex(TypeError, r"not 'a'; .*ds.map\(lambda e: e\['name'\]\)"):
            ds["a"]
        with self.assertRaisesRegex(AttributeError, "element_spec"):
            ds.shape  # noqa: B018
        with self.assertRaisesRegex(AttributeError, "mr.text_line"):
            mr.text  # type: ignore[attr-defined]  # noqa: B018
        with self.assertRaisesRegex(TypeError, "progress: expected a dataset, not list"):
            mr.progress([1])  # type: ignore[arg-type]
        with self.assertRaisesRegex(mr.InvalidArgument, "; json.loads makes a dict"):
            ds.iterator().load_state_dict(json.dumps(ds.iterator().state_dict()))


class Errors(unittest.TestCase):
    def error_of(self, ds: mr.Dataset) -> mr.Error:
        with self.assertRaises(mr.Error) as raised:
            list(ds)
        return raised.exception

    def caret(self, error: mr.Error) -> str:
        """The text at the caret."""
        line, caret = error.__notes__[0].split("\n")
        self.assertEqual(caret.strip(), "^")
        return str(line[caret.index("^") :])

    def test_values_of_expressions_have_a_caret(self) -> None:
        error = self.error_of(mr.range(5).map(lambda x: 100 // (x - 3)))
        self.assertEqual((error.op, error.element), ("map", 3))
        self.assertTrue(self.caret(error).startswith("100 // (x - 3)"))
        # The op's own expression, where another one has the same text.
        twice = mr.range(5).filter(lambda x: 1 // (x + 1) >= 0).map(lambda x: x - 4).filter(lambda x: 1 // (x + 1) < 9)
        error = self.error_of(twice.map(lambda x: x))
        self.assertEqual(error.op, "map/filter")
        self.assertEqual(self.caret(error), "1 // (x + 1) < 9).map(x => x)")
        long = mr.range(5)
        for _ in range(40):
            long = long.map(lambda x: x + 1)
        error = self.error_of(long.map(lambda x: 1 // (x - 42)).batch(2).map(lambda x: x))
        self.assertTrue(self.caret(error).startswith("1 // (x - 42)"))
        self.assertLess(max(map(len, error.__notes__[0].split("\n"))), 120)

    def test_values_of_lines_have_a_place(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "t.txt")
            with open(path, "wb") as f:
                f.write(b"5\n6\r\n\rx\n7\n")
            error = self.error_of(mr.text_line(path).filter(lambda s: s != "").map(lambda s: mr.fn.to_number(s)))
            self.assertEqual((error.file, error.record, error.offset), (path, 3, 6))
            self.assertIn("to_number", self.caret(error))
            with open(path, "w") as f:
                f.writelines(f"{i}\n" for i in range(300_000))
                f.write("x\n")
            error = self.error_of(mr.text_line(path).map(lambda s: mr.fn.to_number(s)).batch(100))
            self.assertEqual((error.file, error.record, error.offset), (path, 300_000, os.path.getsize(path) - 2))

    def test_nothing_shown_has_secrets(self) -> None:
        url = "https://user:5ec2e7p@host/a?token=5ec2e7t&X-Amz-Signature=5ec2e7s"
        ds = mr.zip(mr.from_tensor_slices([url] * 3), mr.range(3).map(lambda x: 10 // x))
        it = iter(ds)
        with self.assertRaises(mr.InvalidArgument) as caught:
            next(it)
        note = "".join(getattr(caught.exception, "__notes__", []))
        self.assertIn("^", note)
        explained = ds.explain()
        distributed = iter(mr.distribute_dataset(ds.batch(1), 1, {}))
        states = [repr(s) for s in (it.state_dict(), distributed.state_dict(), Trail(iter(ds), 1).state_at(0))]
        for shown in (repr(ds), repr(it), *states, note, str(caught.exception), str(explained), explained._repr_html_(),
                      *(o.op for o in explained.ops)):
            self.assertNotIn("5ec2e7", shown)
            self.assertTrue("https" not in shown or "://host/a" in shown or "://..." in shown, shown)
        self.assertIn(url, str(ds))


if __name__ == "__main__":
    kit.main()
