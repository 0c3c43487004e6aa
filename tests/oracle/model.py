# SPDX-License-Identifier: Apache-2.0
"""A second implementation of the ops, one element at a time and as plainly as Python allows.

An iterator is a generator of Row and Error objects: an error takes a position like an element, and
the iteration continues after it. A Row is an element and its identities: (place, file, ordinal, epoch)
of each record that it was made from; the place is the source's number in the text, and None inside a
function, where the library has a hash. Elements are Tensor, tuple, dict (a record) or Dataset.
Iterators of inputs are made where the library makes them, because a shuffle draws its pair then.
"""
import math
import struct

M32 = 0xFFFFFFFF
INFINITE, UNKNOWN = -1, -2


class Error(Exception):
    """One position that failed."""


class Row:
    __slots__ = ("value", "ids")

    def __init__(self, value, ids):
        self.value, self.ids = value, ids


def joined(rows):
    return tuple(identity for row in rows for identity in row.ids)


class TooLong(Exception):
    """The case takes too many steps to be worth comparing."""


class Steps:
    left = 0
    iterators = None  # all that were made; None: not recorded


def step():
    Steps.left -= 1
    if Steps.left < 0:
        raise TooLong


class Tensor:
    def __init__(self, dtype, shape, data):
        self.dtype, self.shape, self.data = dtype, tuple(shape), data

    def rows(self):
        size = 1
        for d in self.shape[1:]:
            size *= d
        return [Tensor(self.dtype, self.shape[1:], self.data[i * size:(i + 1) * size])
                for i in range(self.shape[0])]


def scalar(dtype, value):
    return Tensor(dtype, (), [value])


def leaves(value):
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in leaves(part)]
    if isinstance(value, dict):
        return [leaf for name in sorted(value) for leaf in leaves(value[name])]
    return [value]


def rebuild(like, parts):
    """A value of the structure of `like` from an iterator over its leaves."""
    if isinstance(like, tuple):
        return tuple(rebuild(part, parts) for part in like)
    if isinstance(like, dict):
        return {name: rebuild(like[name], parts) for name in sorted(like)}
    return next(parts)


def pull(iterator):
    """(True, element), (True, Error) or (False, None)"""
    step()
    for value in iterator:
        return True, value
    return False, None


# ---- random words
def philox_words(key, count):
    """One block of the generator."""
    c, k = list(count), list(key)
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(q >> 32) ^ c[1] ^ k[0], q & M32, (p >> 32) ^ c[3] ^ k[1], p & M32]
        k = [(k[0] + 0x9E3779B9) & M32, (k[1] + 0xBB67AE85) & M32]
    return c


def philox(a, b):
    count = b << 64
    while True:
        yield from philox_words((a & M32, a >> 32), [count >> 32 * i & M32 for i in range(4)])
        count = (count + 1) & (1 << 128) - 1


# ---- arithmetic
def wrap(value):
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def float32(value):
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def rounded(dtype, value):
    return {"int64": wrap, "float32": float32}.get(dtype, lambda v: v)(value)


def binary(op, dtype, a, b):
    if dtype == "int64":
        if op in ("//", "%") and b == 0:
            raise Error("division by zero")
        if op == "**" and b < 0:
            raise Error("negative power")
        if op == "**":
            return wrap(pow(a, b, 1 << 64))
    elif op in ("//", "%", "**"):
        raise TooLong
    if op == "/":
        if b == 0:
            return float("nan") if a == 0 or a != a else float("inf") if a > 0 else float("-inf")
        return a / b
    return {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "//": lambda: a // b,
            "%": lambda: a % b, "==": lambda: a == b, "!=": lambda: a != b, "<": lambda: a < b,
            "<=": lambda: a <= b, ">": lambda: a > b, ">=": lambda: a >= b}[op]()


def elementwise(op, a, b):
    """Scalars combine with any shape; otherwise shapes must be equal."""
    shape = a.shape or b.shape
    if a.shape and b.shape and a.shape != b.shape:
        raise Error("shape")
    n = max(len(a.data), len(b.data)) if not shape else 1
    for d in shape:
        n *= d
    left = a.data * n if a.shape == () else a.data
    right = b.data * n if b.shape == () else b.data
    dtype = "bool" if op in ("==", "!=", "<", "<=", ">", ">=") else a.dtype
    if op == "/" and a.dtype == "int64":
        dtype = "float64"
    return Tensor(dtype, shape, [rounded(dtype, binary(op, a.dtype, x, y))
                                 for x, y in zip(left, right)])


def cast(value, dtype):
    if dtype == "int64" and any(v != v or abs(v) > 1e9 for v in value.data):
        raise TooLong
    return Tensor(dtype, value.shape, [int(v) if dtype == "int64" else rounded(dtype, float(v))
                                       for v in value.data])


def reduce_all(name, value):
    total = None
    if name == "sum":
        total = 0 if value.dtype == "int64" else 0.0
        for v in value.data:
            total = rounded(value.dtype, total + v)
    elif not value.data:
        raise Error("no values")
    elif name == "mean":
        total = sum(value.data)  # which does not wrap around
        if value.dtype == "int64":
            total = abs(total) // len(value.data) * (1 if total >= 0 else -1)
        else:
            total = rounded(value.dtype, total / len(value.data))
    else:
        total = {"min": min, "max": max}[name](value.data)
    return scalar(value.dtype, total)


# ---- datasets
class Dataset:
    """make() returns a generator; whatever has to happen when an iterator is made happens in make()."""

    def __init__(self, make, card):
        self.make, self.card, self.shown = make, card, None

    def iterator(self):
        step()
        made = self.make()
        if Steps.iterators is not None:
            Steps.iterators.append(made)
        return made


def map_leaves(dataset, fn):
    """fn for elements, errors passed on"""
    def make():
        def run(source):
            for value in source:
                step()
                if isinstance(value, Error):
                    yield value
                    continue
                try:
                    result = Row(fn(value.value), value.ids)
                except Error as error:
                    result = error
                yield result
        return run(dataset.iterator())
    return Dataset(make, dataset.card)


def source(values, card, place=None):
    """values() gives the elements; each opening is an epoch."""
    opened = [0]

    def make():
        epoch = opened[0]
        opened[0] += 1
        return (Row(value, ((place, 0, i, epoch),)) for i, value in enumerate(values()))
    return Dataset(make, card)


def from_list(values, place=None):
    return source(lambda: list(values), len(values), place)


def need(condition, why):
    if not condition:
        raise Error(why)


def source_range(start, stop, stride, place=None):
    need(stride != 0, "range")
    values = range(start, stop, stride)
    return source(lambda: (scalar("int64", v) for v in values), len(values), place)


def source_counter(start, stride, place=None):
    def run(v):
        while True:
            yield scalar("int64", v)
            v = wrap(v + stride)
    return source(lambda: run(start), INFINITE, place)


def source_random(seed, again, place=None):
    pair = (87654321, seed % (2 ** 31 - 1))
    generator = philox(*pair)

    def run():
        words = philox(next(generator), next(generator)) if again else philox(*pair)
        return (scalar("int64", w) for w in words)
    return source(run, INFINITE, place)


def slices(value, place=None):
    parts = leaves(value)
    need(len({part.shape[0] for part in parts}) == 1, "axis 0")
    columns = [part.rows() for part in parts]
    return from_list([rebuild(value, iter(row)) for row in zip(*columns)], place)


def collect(source, n):
    """Up to n elements, or the error that spoils them."""
    got = []
    while len(got) < n:
        more, value = pull(source)
        if not more:
            break
        if isinstance(value, Error):
            return value
        got.append(value)
    return got


def batched(dataset, n, drop, join):
    need(n > 0, "batch")

    def make():
        def run(source):
            while True:
                got = collect(source, n)
                if not isinstance(got, Error):
                    if not got or drop and len(got) < n:
                        return
                    try:
                        got = Row(join([row.value for row in got]), joined(got))
                    except Error as error:
                        got = error
                yield got
        return run(dataset.iterator())
    card = dataset.card
    if card >= 0:
        card = card // n if drop else -(-card // n)
    return Dataset(make, card)


def stack(values):
    columns = list(zip(*map(leaves, values)))
    parts = []
    for column in columns:
        need(len({t.shape for t in column}) == 1, "shape")
        parts.append(Tensor(column[0].dtype, (len(column),) + column[0].shape,
                            [v for t in column for v in t.data]))
    return rebuild(values[0], iter(parts))


ZERO = {"int64": 0, "float32": 0.0, "float64": 0.0, "bool": False, "string": ""}


def pad(tensor, shape, fill):
    if not shape:
        return list(tensor.data)
    size = 1
    for d in shape[1:]:
        size *= d
    out = [v for row in tensor.rows() for v in pad(row, shape[1:], fill)]
    return out + [fill] * (size * (shape[0] - tensor.shape[0]))


def stack_padded(values, fill, wanted):
    parts = []
    for column in zip(*map(leaves, values)):
        need(len({len(t.shape) for t in column}) == 1, "rank")
        shape = tuple(max(dims) for dims in zip(*(t.shape for t in column)))
        if wanted is not None:
            need(all(w is None or d <= w for d, w in zip(shape, wanted)), "pad")
            shape = tuple(d if w is None else w for d, w in zip(shape, wanted))
        value = ZERO[column[0].dtype] if fill is None else fill
        parts.append(Tensor(column[0].dtype, (len(column),) + shape,
                            [v for t in column for v in pad(t, shape, value)]))
    return rebuild(values[0], iter(parts))


class Ragged:
    """Rows of which the first axis differs."""

    def __init__(self, rows):
        self.shape, self.parts = (len(rows),), rows

    def rows(self):
        return self.parts


def stack_ragged(values, kinds):
    """kinds: of each leaf whether shapes may differ"""
    parts = []
    for column, ragged in zip(zip(*map(leaves, values)), kinds):
        if not ragged:
            parts.append(stack(list(column)))
            continue
        need(len({t.shape[1:] for t in column if t.shape[0]}) < 2, "axis")
        parts.append(Ragged(list(column)))
    return rebuild(values[0], iter(parts))


def expanded(dataset, split):
    """Each row gives a list of rows."""
    def make():
        def run(source):
            for value in source:
                step()
                if isinstance(value, Error):
                    yield value
                    continue
                try:
                    values = split(value)
                except Error as error:
                    yield error
                    continue
                yield from values
        return run(dataset.iterator())
    return Dataset(make, UNKNOWN)


def split_rows(row):
    """As many identities as rows are cut; else every row keeps all."""
    parts = leaves(row.value)
    need(len({part.shape[0] for part in parts}) == 1, "axis 0")
    values = [rebuild(row.value, iter(values)) for values in zip(*(part.rows() for part in parts))]
    cut = len(row.ids) == len(values)
    return [Row(value, row.ids[i:i + 1] if cut else row.ids) for i, value in enumerate(values)]


def unbatched(dataset, axis=None):
    """axis: the length of axis 0 of all elements, if the graph says it"""
    result = expanded(dataset, split_rows)
    if dataset.card == INFINITE:
        result.card = INFINITE
    elif dataset.card >= 0 and axis is not None:
        result.card = dataset.card * axis
    return result


def rebatched(dataset, sizes, drop):
    rows = unbatched(dataset)

    def make():
        def run(source):
            at = 0
            while True:
                n = sizes[at % len(sizes)]
                got = collect(source, n)
                if not isinstance(got, Error):
                    if not got or drop and len(got) < n:
                        return
                    at += 1
                    try:
                        got = Row(stack([row.value for row in got]), joined(got))
                    except Error as error:
                        got = error
                yield got
        return run(rows.iterator())
    return Dataset(make, UNKNOWN)


def shuffled(dataset, size, seed, reshuffle):
    need(size > 0 or size == -2, "shuffle")
    pair = (87654321, seed % (2 ** 31 - 1))
    generator = philox(*pair)

    def make():
        words = philox(next(generator), next(generator)) if reshuffle else philox(*pair)

        def run(source):
            pending, more = [], True
            while True:
                while more and (size == -2 or len(pending) < size):
                    more, value = pull(source)
                    if more and isinstance(value, Error):
                        yield value
                    elif more:
                        pending.append(value)
                if not pending:
                    return
                j = next(words) % len(pending)
                value = pending[j]
                pending[j] = pending[0]
                del pending[0]
                yield value
        return run(dataset.iterator())
    return Dataset(make, dataset.card)


def repeated(dataset, n):
    def make():
        def run(source):
            epoch = 0
            while n < 0 or epoch < n:
                seen = failed = False
                for value in source or dataset.iterator():
                    step()
                    failed = failed or isinstance(value, Error)
                    seen = seen or not isinstance(value, Error)
                    yield value
                if not seen and (n < 0 or dataset.card == 0 and not failed):
                    return
                source = None
                epoch += 1
        return run(dataset.iterator() if n else None)
    card = dataset.card
    if n == 0 or card == 0:
        card = 0
    elif n < 0:
        card = INFINITE
    elif card > 0:
        card *= n
    return Dataset(make, card)


def taken(dataset, n):
    def run(source):
        left = n
        while left > 0:
            more, value = pull(source)
            if not more:
                return
            left -= not isinstance(value, Error)
            yield value
    if n < 0:
        return Dataset(dataset.make, dataset.card)
    card = UNKNOWN if dataset.card == UNKNOWN else n if dataset.card == INFINITE else min(n, dataset.card)
    return Dataset(lambda: run(dataset.iterator()) if n else iter(()), card)


def skipped(dataset, n):
    def run(source):
        left = n
        for value in source:
            step()
            if isinstance(value, Error) or left <= 0:
                yield value
            else:
                left -= 1
    card = dataset.card
    if card >= 0:
        card = 0 if n < 0 else max(0, card - n)
    return Dataset(lambda: run(dataset.iterator()) if n >= 0 else iter(()), card)


def sharded(dataset, n, index, own_errors=False):
    """own_errors: as the streams of a job, of which one returns an error of the input"""
    need(n > 0 and 0 <= index < n, "shard")

    def run(source):
        position = 0
        for value in source:
            step()
            mine = position % n == index
            error = isinstance(value, Error)
            if mine or (error and not own_errors):
                yield value
            position += not error
    card = dataset.card
    if card >= 0:
        card = max(0, -(-(card - index) // n))
    return Dataset(lambda: run(dataset.iterator()), card)


def filtered(dataset, fn):
    return expanded(dataset, lambda row: [row] if fn(row.value).data[0] else [])


def taken_while(dataset, fn):
    def run(source):
        for value in source:
            step()
            if not isinstance(value, Error):
                try:
                    if not fn(value.value).data[0]:
                        return
                except Error as error:
                    value = error
            yield value
    return Dataset(lambda: run(dataset.iterator()), UNKNOWN)


def distinct(dataset):
    def run(source):
        seen = set()
        for value in source:
            step()
            if not isinstance(value, Error):
                key = (value.value.shape, tuple(value.value.data))
                if key in seen:
                    continue
                seen.add(key)
            yield value
    return Dataset(lambda: run(dataset.iterator()), UNKNOWN)


def scanned(dataset, init, fn):
    def run(source):
        state = init
        for value in source:
            step()
            if not isinstance(value, Error):
                try:
                    state, out = fn((state, value.value))
                    value = Row(out, value.ids)
                except Error as error:
                    value = error
            yield value
    return Dataset(lambda: run(dataset.iterator()), dataset.card)


def grouped(dataset, key_of, reduce, size_of):
    def run(source):
        groups, sizes, more = {}, {}, True

        def flush(key):
            rows = groups.pop(key)
            columns = kept_rows([row.value for row in rows], rows)
            try:
                made = reduce((scalar("int64", key), columns)).iterator()
            except Error as error:
                made = iter([error])
            yield from made
        while more:
            more, value = pull(source)
            if not more:
                break
            if isinstance(value, Error):
                yield value
                continue
            try:
                key = key_of(value.value).data[0]
                if key not in sizes:
                    size = size_of(key)
                    need(size > 0, "window")
                    sizes[key] = size
            except Error as error:
                yield error
                continue
            groups.setdefault(key, []).append(value)
            if len(groups[key]) == sizes[key]:
                yield from flush(key)
        for key in sorted(groups):
            yield from flush(key)
    return Dataset(lambda: run(dataset.iterator()), INFINITE if dataset.card == INFINITE else UNKNOWN)


def bucketed(dataset, length_of, boundaries, sizes, drop):
    def key_of(value):
        n = length_of(value).data[0]
        return scalar("int64", sum(b <= n for b in boundaries))
    return grouped(dataset, key_of, lambda v: batched(
        v[1], sizes[v[0].data[0]], drop, lambda values: stack_padded(values, None, None)), lambda key: sizes[key])


def interleaved(dataset, fn, cycle, block, parallel=False):
    def run(source):
        slots, c, b, ended = [None] * cycle, 0, 0, False
        while True:
            step()
            if slots[c] is None and ended:
                if not any(slots):
                    return
                b, c = 0, (c + 1) % cycle
                continue
            if slots[c] is None:
                more, value = pull(source)
                if not more:
                    ended = True
                elif isinstance(value, Error):
                    yield value
                else:
                    try:
                        slots[c] = fn(value.value).iterator()
                    except Error as error:
                        yield error
                continue
            more, value = pull(slots[c])
            if not more:
                slots[c] = None
                b, c = 0, (c + 1) % cycle
                continue
            if not isinstance(value, Error):
                b += 1
                if b == block:
                    b, c = 0, (c + 1) % cycle
            yield value
    return Dataset(lambda: run(dataset.iterator()), INFINITE if parallel and dataset.card == INFINITE else UNKNOWN)


def zipped(datasets):
    def run(sources):
        while True:
            values = []
            for source in sources:
                more, value = pull(source)
                if not more:
                    break
                values.append(value)
            errors = [value for value in values if isinstance(value, Error)]
            if errors:
                yield errors[0]
            if len(values) < len(sources):
                return
            if not errors:
                yield Row(tuple(row.value for row in values), joined(values))
    cards = [d.card for d in datasets]
    finite = [c for c in cards if c >= 0]
    card = UNKNOWN if UNKNOWN in cards else min(finite) if finite else INFINITE
    return Dataset(lambda: run([d.iterator() for d in datasets]), card)


def concatenated(a, b):
    def run(source):
        yield from source
        yield from b.iterator()
    card = INFINITE if INFINITE in (a.card, b.card) else UNKNOWN if UNKNOWN in (a.card, b.card) \
        else a.card + b.card
    return Dataset(lambda: run(a.iterator()), card)


def selected(datasets, numbers, card, stop):
    """numbers() yields an input's number, or an Error; the inputs that are None are never used."""
    def run(sources, choices):
        left = sum(source is not None for source in sources)
        while left:
            more, i = pull(choices)
            if not more:
                return
            if isinstance(i, Error):
                yield i
                continue
            if not 0 <= i < len(sources):
                yield Error("range")
                continue
            if sources[i] is None:
                continue
            more, value = pull(sources[i])
            if more:
                yield value
                continue
            sources[i] = None
            left -= 1
            if stop:
                return
    return Dataset(lambda: run([d and d.iterator() for d in datasets], numbers()), card)


def chosen(datasets, choice, stop):
    card = INFINITE if any(d.card == INFINITE for d in datasets) else UNKNOWN
    return selected(datasets, lambda: (v if isinstance(v, Error) else v.value.data[0] for v in choice.iterator()),
                    card, stop)


def uniform(word0, word1):
    """A number below 1 from two words of random()."""
    k0, k1, c2, c3 = philox_words((0x3EC8F720, 0x02461E29), (word0, 0, word1, 0))
    x0, x1, _, _ = philox_words((k0, k1), (0, 0, c2, c3))
    return struct.unpack("<d", struct.pack("<Q", 1023 << 52 | (x0 & 0xFFFFF) << 32 | x1))[0] - 1.0


def weighted(used, weights):
    """A function of words, that draws the numbers of `used` in proportion to their weights."""
    logits = [float32(math.log(float32(weights[i]))) if weights else 1.0 for i in used]
    sums, total = [], 0.0
    for logit in logits:
        total += math.exp(logit - max(logits))
        sums.append(total)

    def draw(words):
        while True:
            if len(used) == 1:
                yield used[0]
                continue
            at = uniform(next(words), next(words)) * total
            yield used[sum(s <= at for s in sums)]

    return draw


def sampled(datasets, weights, seed, stop, again):
    used = [i for i in range(len(datasets)) if weights is None or weights[i] > 0]
    pair = (87654321, seed % (2 ** 31 - 1))
    generator = philox(*pair)
    draw = weighted(used, weights)

    def numbers():
        return draw(philox(next(generator), next(generator)) if again else philox(*pair))
    cards = [datasets[i].card for i in used]
    card = 0 if not used else cards[0] if len(used) == 1 else INFINITE if INFINITE in cards else UNKNOWN
    return selected([d if i in used else None for i, d in enumerate(datasets)], numbers, card, stop)


def selected_again(datasets, numbers, card):
    """As selected, but an input that ends begins again, until each has ended once; one without elements ends."""
    def run(choices):
        sources, once, some = [d.iterator() for d in datasets], [False] * len(datasets), [False] * len(datasets)
        for i in choices:
            step()
            while sources[i] is not None:
                more, value = pull(sources[i])
                if more:
                    some[i] |= not isinstance(value, Error)
                    yield value
                    break
                once[i] = True
                if all(once):
                    return
                sources[i] = datasets[i].iterator() if some[i] else None
                some[i] = False
    return Dataset(lambda: run(numbers()), card)


def mixed(datasets, weights, seed, stop):
    cards = [d.card for d in datasets]
    card = UNKNOWN
    if len(cards) == 1:
        card = cards[0]
    elif all(c == INFINITE for c in cards) or (INFINITE in cards and stop != "first"):
        card = INFINITE
    elif stop == "all" and UNKNOWN not in cards:
        card = sum(cards)
    draw = weighted(list(range(len(datasets))), weights)

    def numbers():
        return draw(philox(87654321, seed % (2 ** 31 - 1)))
    if stop == "repeat":
        return selected_again(datasets, numbers, card)
    return selected(datasets, numbers, card, stop == "first")


def distributed(whole, streams, block):
    """streams of a service, `block` elements of each in turn; their sources are numbered by themselves"""
    begun = []

    def run(sources):
        if sources is None:  # the first repetition begins with its first element
            begun.append(True)
            sources = [d.iterator() for d in streams]
        turn, taken, ended = 0, 0, [False] * len(streams)
        while not all(ended):
            step()
            if not ended[turn]:
                more, value = pull(sources[turn])
                if isinstance(value, Error):
                    yield value
                    continue
                if more:
                    taken += 1
                    yield Row(value.value, value.ids)
                    if taken < block:
                        continue
                ended[turn] = not more
            turn, taken = (turn + 1) % len(streams), 0
    cards = [d.card for d in streams]
    card = INFINITE if whole == INFINITE else UNKNOWN if whole < 0 or min(cards) < 0 else sum(cards)
    return Dataset(lambda: run([d.iterator() for d in streams] if begun else None), card)


def enumerated(dataset, start):
    def run(source):
        for i, value in enumerate(source, start):
            step()
            yield value if isinstance(value, Error) else Row((scalar("int64", i), value.value), value.ids)
    return Dataset(lambda: run(dataset.iterator()), dataset.card)


def kept_rows(values, rows):
    """A component of rows that keep their identities."""
    return Dataset(lambda: iter([Row(value, row.ids) for value, row in zip(values, rows)]), len(values))


def windowed(dataset, size, shift, stride, drop):
    need(size > 0 and shift > 0 and stride > 0, "window")
    target = (size - 1) * stride + 1

    def run(source):
        buffer, more = [], True
        while True:
            while more and len(buffer) < target:
                more, value = pull(source)
                if more:
                    buffer.append(value)
            if not buffer or drop and len(buffer) < target:
                return
            picked = buffer[:target:stride]
            for _ in range(max(0, shift - len(buffer))):
                if not more:
                    break
                more, _value = pull(source)
            del buffer[:shift]
            errors = [value for value in picked if isinstance(value, Error)]
            if errors:
                yield errors[0]
                continue
            columns = [kept_rows(column, picked) for column in zip(*(leaves(row.value) for row in picked))]
            yield Row(rebuild(picked[0].value, iter(columns)), joined(picked))
    card = dataset.card
    if card >= 0:
        card = max(0, (card - target) // shift + 1) if drop else -(-card // shift)
    return Dataset(lambda: run(dataset.iterator()), card)


def cached(dataset):
    kept = []

    def record(source):
        got = []
        for value in source:
            step()
            if not isinstance(value, Error):
                got.append(value)
                if len(got) == dataset.card and not kept:
                    kept.append(got)
            yield value
        if not kept:
            kept.append(got)
    return Dataset(lambda: iter(list(kept[0])) if kept else record(dataset.iterator()), dataset.card)


def without_errors(dataset):
    def run(source):
        for value in source:
            step()
            if not isinstance(value, Error):
                yield value
    return Dataset(lambda: run(dataset.iterator()), UNKNOWN)


def asserted(dataset, n):
    def run(source):
        seen = 0
        for value in source:
            step()
            if isinstance(value, Error):
                yield value
                continue
            seen += 1
            yield value if n < 0 or seen <= n else Error("cardinality")
        if n < 0 or seen < n:
            yield Error("cardinality")
    return Dataset(lambda: run(dataset.iterator()), n)


def read_ahead():
    """One more element of every iterator, as what reads ahead asks for: that may take too long."""
    iterators, Steps.iterators = Steps.iterators, None
    for iterator in iterators:
        next(iterator, None)


# ---- what comes out
def realized(value):
    """The same with lists of what came out for datasets, each of which is run once: opened by itself, as it is to be
    shown, a dataset begins with its first order every time."""
    if isinstance(value, tuple):
        return tuple(realized(v) for v in value)
    if isinstance(value, dict):
        return {name: realized(v) for name, v in value.items()}
    if isinstance(value, Dataset):
        if value.shown is None:
            value.shown = [row if isinstance(row, Error) else realized(row.value) for row in value.iterator()]
        return value.shown
    return value


def printed(value):
    """As the command line prints a realized value."""
    if isinstance(value, Error):
        raise value
    if isinstance(value, list):
        return {"dataset": [printed(v) for v in value]}
    if isinstance(value, tuple):
        return {str(i): printed(v) for i, v in enumerate(value)}
    if isinstance(value, dict):
        return {name: printed(v) for name, v in value.items()}
    if value.shape:
        return [printed(row) for row in value.rows()]
    v = value.data[0]
    if isinstance(v, float) and (v != v or abs(v) == float("inf")):
        return "nan" if v != v else "inf" if v > 0 else "-inf"
    return v


def event(value):
    """As tests/events.h says it: leaves alone, without blanks."""
    if isinstance(value, Error):
        return "!"
    parts = [leaf_event(leaf) for leaf in leaves(value)]
    return parts[0] if len(parts) == 1 else "(" + ",".join(parts) + ")"


def leaf_event(value):
    if isinstance(value, list):
        return "{" + ",".join(map(event, value)) + "}"
    if value.shape:
        return "[" + ",".join(leaf_event(row) for row in value.rows()) + "]"
    v = value.data[0]
    if value.dtype == "bool":
        return "true" if v else "false"
    if value.dtype == "string":
        return '"' + v.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(v)
