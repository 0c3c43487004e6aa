# SPDX-License-Identifier: Apache-2.0
"""Tables of structs in lists, maps and deep lists, and what Millrace makes of their values: a list of structs is a
struct of lists."""
import numpy
import pyarrow as pa

PAIR = pa.struct([("a", pa.int32()), ("b", pa.string())])
INNER = pa.struct([("p", pa.bool_()), ("q", pa.list_(pa.float32()))])


def cube(i, *shape):
    """Nested lists whose first two levels differ in length."""
    return [[numpy.full(shape, i % 100).tolist() for _ in range((i + j) % 3)] for j in range(i % 4)]


def pair(i):
    return {"a": i, "b": f"word {i}"}


def inner(i):
    return {"p": i % 2 == 0, "q": [i / 2] * (i % 3)}


def table(n):
    columns = {
        "pairs": ([[pair(i + j) for j in range(i % 4)] for i in range(n)], pa.list_(PAIR)),
        "one": ([[{"a": i + j} for j in range(i % 3)] for i in range(n)], pa.list_(pa.struct([("a", pa.int64())]))),
        "deep": ([[[pair(i + j)] * j for j in range(i % 5)] for i in range(n)], pa.list_(pa.list_(PAIR))),
        "within": ([{"x": {"l": [inner(i + j) for j in range(i % 4)], "k": i}} for i in range(n)],
                   pa.struct([("x", pa.struct([("l", pa.list_(INNER)), ("k", pa.int16())]))])),
        "map": ([[(f"k{j}", i * j) for j in range(i % 5)] for i in range(n)], pa.map_(pa.string(), pa.int64())),
        "maps": ([[(f"k{j}", [(k, {"v": k * i}) for k in range(j)]) for j in range(i % 4)] for i in range(n)],
                 pa.map_(pa.string(), pa.map_(pa.int32(), pa.struct([("v", pa.int64())])))),
        "cubes": ([cube(i, i % 3) for i in range(n)], pa.list_(pa.list_(pa.list_(pa.uint8())))),
        "four": ([cube(i, 2, i % 3) for i in range(n)], pa.list_(pa.list_(pa.list_(pa.list_(pa.int16()))))),
        "both": ([[{"i": i + j, "c": [[i % 100] * (i % 3)] * j} for j in range(i % 4)] for i in range(n)],
                 pa.list_(pa.struct([("i", pa.int32()), ("c", pa.list_(pa.list_(pa.int8())))]))),
    }
    return pa.table({name: pa.array(*of) for name, of in columns.items()} | {"i": range(n)})


def nulls():
    """Rows 0 and 1 of each column are whole, the others have a null somewhere."""
    p, q = pair(1), {"a": None, "b": "x"}
    columns = {
        "pairs": ([[p, p], [], None, [None], [p, q], [q]], pa.list_(PAIR)),
        "deep": ([[[p], []], [], None, [None, [p]], [[None]], [[p], [p, q]]], pa.list_(pa.list_(PAIR))),
        "within": ([{"l": [inner(1)]}, {"l": []}, None, {"l": None}, {"l": [None]}, {"l": [{"p": True, "q": [None]}]}],
                   pa.struct([("l", pa.list_(INNER))])),
        "map": ([[("a", 1)], [], None, [("a", None)], [("a", 1), ("b", None)], None], pa.map_(pa.string(), pa.int64())),
        "cubes": ([[[[1, 2]], [[3, 4], [5, 6]]], [], None, [None], [[None]], [[[1, None]]]],
                  pa.list_(pa.list_(pa.list_(pa.int32())))),
    }
    return pa.table({name: pa.array(*of) for name, of in columns.items()})


def uneven():
    """Lists whose third level has several lengths in rows 1 and 3."""
    rows = [[[[1], [2]]], [[[1], [2, 3]]], [[[]]], [[[], [1]]], [[[4, 5]], [], [[6, 7]]]]
    return pa.table({"x": pa.array(rows, pa.list_(pa.list_(pa.list_(pa.int32())))), "i": range(len(rows))})


def is_list(kind):
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def fields_of(kind):
    """What its values are made of in Millrace: {} of these, or None."""
    if pa.types.is_struct(kind):
        return {kind.field(i).name: kind.field(i).type for i in range(kind.num_fields)}
    if pa.types.is_map(kind):
        return fields_of(pa.struct([("key", kind.key_type), ("value", kind.item_type)]))
    return fields_of(kind.value_type) if is_list(kind) else None


def gathered(values, kind):
    """Of values of a kind one value, the list of them, in each leaf."""
    fields = fields_of(kind)
    return values if fields is None else {name: gathered([v[name] for v in values], of) for name, of in fields.items()}


def turned(value, kind):
    """The value as Millrace has it."""
    if pa.types.is_struct(kind):
        return {name: turned(value[name], of) for name, of in fields_of(kind).items()}
    if pa.types.is_map(kind):
        entry = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        return gathered([turned({"key": k, "value": v}, entry) for k, v in value], entry)
    return gathered([turned(v, kind.value_type) for v in value], kind.value_type) if is_list(kind) else value


def rows_of(t):
    """The rows of a table, as dicts."""
    columns = {name: [turned(v, t.column(name).type) for v in t.column(name).to_pylist()] for name in t.column_names}
    return [{name: v[i] for name, v in columns.items()} for i in range(t.num_rows)]
