/* SPDX-License-Identifier: Apache-2.0 */
/* What every op owes its neighbours, seen from an input that the test holds: an op `fed` that emits
 * blocks of chosen sizes and an error at a chosen row, counts what is taken from it, and keeps its
 * buffers, so that references can be inspected. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "pipeline/engine/op_iterator.h"
#include "pipeline/graph/op.h"
#include "tests/events.h"
#include "tests/harness.h"
#include "tests/pipeline/ops/drive.h"

enum { MOST_BUFFERS = 256 };

static struct {
    int64_t rows, chunk,
        bad; /* numbers 0..rows-1 in blocks of `chunk` at most, an error at `bad` */
    int64_t taken;
    mr_buffer *held[MOST_BUFFERS];
    size_t n_held;
} feed;

struct fed {
    int64_t next;
    bool failed;
};

static mr_code fed_next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    struct fed *s = it->state;
    if (s->next == feed.bad && !s->failed) {
        s->failed = true;
        return mr_fail(st, MR_DATA_LOSS, "fed an error");
    }
    int64_t end = !s->failed && feed.bad > s->next ? feed.bad : feed.rows;
    int64_t n = end - s->next < feed.chunk ? end - s->next : feed.chunk;
    n = n < (int64_t)want ? n : (int64_t)want;
    if (n == 0)
        return MR_END;
    MR_TRY(mr_block_prepare(out, 1, st));
    MR_TRY(mr_array_alloc(&out->columns[0], MR_INT64, 0, NULL, (size_t)n, st));
    for (int64_t i = 0; i < n; i++)
        ((int64_t *)out->columns[0].data)[i] = s->next++;
    out->rows = (size_t)n;
    feed.taken += n;
    if (feed.n_held < MOST_BUFFERS)
        feed.held[feed.n_held++] = mr_buffer_ref(out->columns[0].owner);
    return MR_OK;
}

static mr_code fed_infer(const mr_dataset *self, const void *p, mr_spec **out, mr_status *st)
{
    (void)self;
    (void)p;
    *out = mr_spec_scalar(MR_INT64);
    return *out ? MR_OK : mr_fail_memory(st, 0, "a spec");
}

static mr_code fed_save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    const struct fed *s = it->state;
    MR_TRY(mr_state_put_i64(w, s->next, st));
    return mr_state_put_u64(w, s->failed, st);
}

static mr_code fed_restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    struct fed *s = it->state;
    uint64_t failed;
    MR_TRY(mr_state_get_i64(r, &s->next, st));
    MR_TRY(mr_state_get_u64(r, &failed, st));
    s->failed = failed;
    return MR_OK;
}

static const mr_op fed = {.abi = MR_ABI_VERSION,
                          .name = "fed",
                          .doc = "Numbers as the test feeds them.",
                          .example = "fed()",
                          .iter_size = sizeof(struct fed),
                          .role = MR_ROLE_SOURCE,
                          .infer = fed_infer,
                          .next = fed_next,
                          .save = fed_save,
                          .restore = fed_restore};

/* Runs text over fed numbers; the buffers that were given are looked at when all is closed. */
static void run_fed(const char *text, int64_t rows, int64_t chunk, int64_t bad, size_t want,
                    mr_events *e)
{
    mr_status st;
    if (!mr_op_find("fed", 3))
        mr_ok(mr_op_register(&fed, &st), &st);
    feed.rows = rows;
    feed.chunk = chunk;
    feed.bad = bad;
    feed.taken = 0;
    feed.n_held = 0;
    mr_dataset *ds = mr_drive_build(text);
    mr_iterator *it = NULL;
    mr_ok(
        mr_iterator_open(&it, ds, &(mr_iterator_opts){.has_threads = true, .positions = true}, &st),
        &st);
    mr_events_run(e, it, want, SIZE_MAX);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    for (size_t i = 0; i < feed.n_held; i++) {
        if (!mr_buffer_writable(feed.held[i]))
            mr_fail_test("%s: a buffer of the input is still held", text);
        mr_buffer_unref(feed.held[i]);
    }
}

/* As many rows are taken of the input as the definition of the op, an element at a time, needs. A
 * filter that drops rows takes up to as many more, of an input that can be read again. */
static const struct needs {
    const char *text;
    int64_t rows; /* of 40 */
} needs[] = {
    {"fed().take(3)", 3},
    {"fed().map(x => x * 2).take(3)", 3},
    {"fed().filter(x => x % 4 == 3).take(2)", 8},
    {"fed().take_while(x => x < 9).take(3)", 3},
    {"fed().map(x => x // 2).unique().take(3)", 5},
    {"fed().scan(0, (s, x) => (s + x, s)).take(3)", 3},
    {"fed().group_by_window(x => x % 3, (k, w) => w, 2).take(4)", 5},
    {"fed().group_by_window(x => x % 3, (k, w) => w, k => k + 1).take(4)", 5},
    {"fed().bucket_by_sequence_length(x => x % 2, [1], [3, 4]).take(2)", 8},
    {"fed().map(x => ones([x])).ragged_batch(4).take(2)", 8},
    {"fed().batch(4).take(2)", 8},
    {"fed().batch(4).unbatch().take(5)", 8},
    {"fed().batch(4).rebatch(3).take(2)", 8},
    {"fed().padded_batch(4).take(2)", 8},
    {"fed().skip(5).take(3)", 8},
    {"fed().shard(4, 1).take(2)", 6},
    {"fed().shard(4, 1).take(3)", 10},
    {"fed().enumerate().take(3)", 3},
    {"fed().repeat(2).take(3)", 3},
    {"fed().cache().take(3)", 3},
    {"fed().concatenate(range(3)).take(3)", 3},
    {"fed().flat_map(x => range(2)).take(5)", 3},
    {"fed().window(3, shift=2).flat_map(w => w).take(4)", 5},
    {"fed().window(2, shift=5).flat_map(w => w).take(4)", 10},
    {"fed().shuffle(4, seed=1).take(3)", 6},
    {"zip(fed(), range(9)).take(3)", 3},
    {"choose_from_datasets([fed(), range(9)], counter().map(x => x % 2)).take(4)", 2},
    {"choose_from_datasets([range(9), range(5)], fed().map(x => x % 2)).take(4)", 4},
    {"sample_from_datasets([fed()], seed=1).take(3)", 3},
    {"mix({\"a\": fed()}, seed=1).take(3)", 3},
    {"fed().assert_cardinality(40).take(3)", 3},
    {"fed().ignore_errors().take(3)", 3},
    {"fed().with_options(deterministic=true).take(3)", 3},
    {"fed().batch(4).replica_slices(2).take(3)", 8},
};

MR_TEST(no_more_is_taken_of_an_input_than_is_needed)
{
    static const int64_t chunks[] = {1, 3, 7, 1000};
    static const size_t wants[] = {1, 2, 1000};
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        for (size_t c = 0; c < 4; c++)
            for (size_t w = 0; w < 3; w++) {
                mr_events e = {0};
                mr_test_context("%s, blocks of %d, %d wanted", needs[i].text, (int)chunks[c],
                                (int)wants[w]);
                run_fed(needs[i].text, 40, chunks[c], -1, wants[w], &e);
                int64_t more = strstr(needs[i].text, ".filter(") ? 3 : 0;
                mr_check(feed.taken >= needs[i].rows && feed.taken <= needs[i].rows + more);
                mr_events_reset(&e, 0);
            }
}

MR_TEST(blocks_of_any_size_and_an_error_at_any_row_give_one_result)
{
    static const char *const graphs[] = {
        "fed().batch(4)",
        "fed().batch(3).unbatch()",
        "fed().batch(4).rebatch([1, 3])",
        "fed().map(x => (x, x * x)).filter((a, b) => b % 3 != 1)",
        "fed().skip(3).take(9)",
        "fed().rejection_resample(x => 12 // (x - 4) % 2, [1, 2], seed=1)",
        "fed().map(x => ones([x])).ragged_batch(3)",
        "fed().group_by_window(x => 12 // (x - 4) % 3, (k, w) => w.batch(2), 3)",
        "fed().bucket_by_sequence_length(x => x % 4, [1, 2], [2, 3, 2])",
        "fed().scan(0, (s, x) => (s + 12 // (x - 4), s))",
        "fed().take_while(x => 12 // (x - 5) < 6)",
        "fed().map(x => x % 5).unique()",
        "fed().shard(3, 1)",
        "fed().enumerate().shuffle(4, seed=3)",
        "fed().cache().repeat(2)",
        "fed().window(3, shift=2).flat_map(w => w.batch(3))",
        "zip(fed(), range(20).batch(1))",
        "fed().interleave(x => range(x % 3), cycle_length=2)",
        "fed().padded_batch(3)",
        "fed().batch(5).replica_slices(2)",
        "choose_from_datasets([range(7), fed().map(x => x * 100)], counter().map(x => x % 2))",
        "choose_from_datasets([range(7), range(20, 30)], fed().map(x => x % 3))",
        "sample_from_datasets([range(7), fed().map(x => x * 100)], seed=3)",
        "mix({\"a\": range(7), \"b\": fed().map(x => x * 100)}, seed=3, stop=\"repeat\")",
        "fed().prefetch(2).assert_cardinality(12)",
        "fed().map(x => 12 // (x - 5), num_parallel_calls=2).ignore_errors()"};
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++)
        for (int64_t bad = -1; bad <= 12; bad++) {
            mr_events first = {0};
            run_fed(graphs[i], 12, 1, bad, 1, &first);
            for (int64_t chunk = 2; chunk <= 14; chunk += 3)
                for (size_t want = 1; want < 20; want += 6) {
                    mr_events e = {0};
                    mr_test_context("%s, blocks of %d, an error at %d, %d wanted", graphs[i],
                                    (int)chunk, (int)bad, (int)want);
                    run_fed(graphs[i], 12, chunk, bad, want, &e);
                    char *a = mr_events_join(&e), *b = mr_events_join(&first);
                    mr_eq_str(a, b);
                    free(a);
                    free(b);
                    mr_events_reset(&e, 0);
                }
            mr_events_reset(&first, 0);
        }
}

/* ---- an op of more rows than were asked for, with errors among them ---- */

enum { EMITTED = 7 };

/* State: rounds. Each gives an error, the numbers 0..6 with an error before 3, and one at the end.
 */
static mr_code emits_next(mr_iter *it, size_t want, mr_block *out, mr_status *st)
{
    static const size_t places[] = {0, 4, 9};
    int64_t *rounds = it->state;
    if (*rounds == 2)
        return MR_END;
    mr_block rows = MR_BLOCK_EMPTY;
    mr_row_errors errors = MR_ROW_ERRORS_EMPTY;
    mr_status bad;
    MR_TRY(mr_block_prepare(&rows, 1, st));
    MR_TRY(mr_array_alloc(&rows.columns[0], MR_INT64, 0, NULL, EMITTED, st));
    for (int64_t i = 0; i < EMITTED; i++)
        ((int64_t *)rows.columns[0].data)[i] = i;
    rows.rows = EMITTED;
    for (size_t i = 0; i < 3; i++) {
        (void)mr_fail(&bad, MR_DATA_LOSS, "error %c", (int)('a' + i));
        MR_TRY(mr_row_errors_add(&errors, places[i], &bad, st));
    }
    ++*rounds;
    return mr_iter_emit(it, want, &rows, &errors, out, st);
}

static mr_code emits_save(mr_iter *it, mr_state_w *w, mr_status *st)
{
    return mr_state_put_i64(w, *(const int64_t *)it->state, st);
}

static mr_code emits_restore(mr_iter *it, mr_state_r *r, mr_status *st)
{
    return mr_state_get_i64(r, it->state, st);
}

static const mr_op emits = {.abi = MR_ABI_VERSION,
                            .name = "emits",
                            .doc = "Numbers and errors, all at once.",
                            .example = "emits()",
                            .iter_size = sizeof(int64_t),
                            .role = MR_ROLE_SOURCE,
                            .infer = fed_infer,
                            .next = emits_next,
                            .save = emits_save,
                            .restore = emits_restore};

MR_TEST(what_an_op_emits_beyond_what_was_asked_for_is_delivered_and_saved)
{
    mr_status st;
    mr_ok(mr_op_register(&emits, &st), &st);
    mr_drive("emits()", "!a 0 1 2 !b 3 4 5 6 !c !a 0 1 2 !b 3 4 5 6 !c");
    mr_drive("emits().map(x => x * x).prefetch(2)",
             "!a 0 1 4 !b 9 16 25 36 !c !a 0 1 4 !b 9 16 25 36 !c");
}

/* ---- forged positions: the checksum is right, the numbers are not ---- */

static void *position_of(const char *text, size_t events, size_t *size)
{
    mr_dataset *ds = mr_drive_build(text);
    mr_iterator *it = NULL;
    mr_status st;
    mr_events e = {0};
    void *bytes = NULL;
    mr_iterator_opts opts = {.has_threads = true, .positions = true};
    mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
    mr_events_run(&e, it, 1, events);
    mr_ok(mr_iterator_save(it, &bytes, size, &st), &st);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr_events_reset(&e, 0);
    return bytes;
}

static mr_code restore_bytes(const char *text, unsigned char *bytes, size_t size, mr_events *e)
{
    uint32_t sum = (uint32_t)crc32_z(0, bytes + 8, size - 8);
    for (int i = 0; i < 4; i++)
        bytes[4 + i] = (unsigned char)(sum >> 8 * i);
    mr_dataset *ds = mr_drive_build(text);
    mr_iterator *it = NULL;
    mr_status st;
    mr_iterator_opts opts = {.has_threads = true, .positions = true};
    mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
    mr_code rc = mr_iterator_restore(it, bytes, size, &st);
    if (rc == MR_OK)
        mr_events_run(e, it, 3, 60);
    else
        mr_check(rc == MR_INVALID_ARGUMENT && st.message[0]);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    return rc;
}

/* Number `field` (below 128) of op's own state, after its name, flags, epoch and count. */
static unsigned char *field_of(unsigned char *bytes, size_t size, const char *op, size_t field)
{
    size_t n = strlen(op);
    for (size_t at = size - n - 1; at > 8; at--)
        if (bytes[at - 1] == n && memcmp(bytes + at, op, n) == 0 && at + n + 3 + field < size)
            return bytes + at + n + 3 + field;
    mr_fail_test("no state of %s in the position", op);
}

MR_TEST(numbers_of_a_position_that_cannot_be_are_refused)
{
    static const struct {
        const char *text, *op;
        size_t events, field;
        unsigned char value;
    } cases[] = {
        {"range(9).take(3)", "take", 1, 0, 4},
        {"range(12).batch(4).rebatch([2, 3])", "rebatch", 1, 0, 2},
        {"range(12).batch(4).rebatch(6)", "rebatch", 1, 0, 1},
        {"range(9)", "range", 1, 0, 10},
        {"range(3).concatenate(range(3))", "concatenate", 1, 0, 3},
        {"range(3).repeat(2)", "repeat", 1, 0, 2},
        {"range(3).repeat(2)", "repeat", 1, 1, 4},
        {"range(9).take_while(x => x < 7)", "take_while", 1, 0, 2},
        {"choose_from_datasets([range(9)], range(9).map(x => 0))", "choose_from_datasets", 1, 0, 2},
        {"choose_from_datasets([range(9)], range(9).map(x => 0))", "choose_from_datasets", 1, 1, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t size;
        mr_events e = {0};
        mr_test_context("%s, number %zu is %d", cases[i].text, cases[i].field, cases[i].value);
        unsigned char *bytes = position_of(cases[i].text, cases[i].events, &size);
        *field_of(bytes, size, cases[i].op, cases[i].field) = cases[i].value;
        mr_code_is(restore_bytes(cases[i].text, bytes, size, &e), MR_INVALID_ARGUMENT, NULL);
        mr_free(bytes);
        mr_events_reset(&e, 0);
    }
}

/* Replaces the text of the graph in the position. */
static void put_text(unsigned char *bytes, size_t size, const char *was, const char *text)
{
    unsigned char *at = memmem(bytes, size, was, strlen(was));
    mr_check(at && strlen(was) == strlen(text));
    memcpy(at, text, strlen(text));
}

MR_TEST(an_input_that_must_be_open_is)
{
    static const char *const texts[][2] = {{"range(9).take(0)", "range(9).take(3)"},
                                           {"range(9).skip(-1)", "range(9).skip(10)"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t size;
        mr_events e = {0};
        mr_test_context("%s as %s", texts[i][0], texts[i][1]);
        unsigned char *bytes = position_of(texts[i][0], 0, &size);
        put_text(bytes, size, texts[i][0], texts[i][1]);
        mr_code_is(restore_bytes(texts[i][1], bytes, size, &e), MR_INVALID_ARGUMENT, NULL);
        mr_free(bytes);
    }
}

/* Whichever byte is changed: refused, or a run that ends. */
MR_TEST_SLOW(no_byte_of_a_position_can_do_harm)
{
    static const char *const texts[] = {
        "range(9).map(x => 6 // (x - 4)).shuffle(3, seed=1).batch(2).take(3)",
        "range(12).batch(4).rebatch([2, 3]).cache().repeat(2)",
        "range(7).map(x => ones([x])).prefetch(2).padded_batch(2)",
        "choose_from_datasets([range(9), range(4)], range(9).map(x => x % 2)).take(7)",
        "sample_from_datasets([range(9), range(4)], seed=1, weights=[1, 3]).batch(2)",
        ("mix({\"a\": range(9).shuffle(3, seed=1), \"b\": range(4)}, seed=1, "
         "stop=\"repeat\").batch(2)"),
        "range(9).scan((0, [1]), (s, x) => ((s[0] + x, concat(s[1], [x])), s)).take(7)",
        "range(9).group_by_window(x => x % 2, (k, w) => w.map(x => (k, x)), k => k + 2)",
        "range(9).map(x => ones([x])).bucket_by_sequence_length(x => length(x), [3], [2, 2])",
        "range(9).map(x => ones([x])).ragged_batch(2).shuffle(3, seed=1)",
        "range(9).rejection_resample(x => x % 2, [1, 2], seed=1)",
        "random(seed=1).take_while(x => x > 9).take(4)",
        "from_tensor_slices([\"a\", \"b\", \"a\"]).unique().repeat(2)",
        "range(9).map(x => x % 4).unique()",
        "range(5).interleave(n => range(n), cycle_length=2).enumerate().skip(1).shard(2, 1)",
        "zip(range(9), range(9).window(2)).flat_map((a, w) => w.batch(2))",
    };
    uint64_t random = mr_test_seed();
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t size;
        unsigned char *bytes = position_of(texts[i], 2, &size);
        for (size_t at = 8; at < size; at += mr_test_step(&random, 16)) {
            static const unsigned char values[] = {0, 1, 2, 3, 7, 63, 127, 128, 255};
            unsigned char was = bytes[at];
            for (size_t v = 0; v < sizeof values; v++) {
                mr_events e = {0};
                bytes[at] = values[v];
                mr_test_context("%s, byte %zu of %zu is %d", texts[i], at, size, values[v]);
                (void)restore_bytes(texts[i], bytes, size, &e);
                mr_events_reset(&e, 0);
            }
            bytes[at] = was;
        }
        mr_free(bytes);
    }
}

MR_TEST(a_state_of_another_op_is_refused)
{
    static const char text[] = "range(9).take(3)";
    size_t size;
    mr_events e = {0};
    unsigned char *bytes = position_of(text, 1, &size);
    size_t at = size - 4;
    while (memcmp(bytes + at, "take", 4) != 0) /* the last is not of the text, but of the state */
        at--;
    memcpy(bytes + at, "skip", 4);
    mr_code_is(restore_bytes(text, bytes, size, &e), MR_INVALID_ARGUMENT, NULL);
    mr_free(bytes);
}

/* Whatever the op would give. */
MR_TEST(blocks_have_block_rows_at_most)
{
    mr_iterator *it = NULL;
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    if (!mr_op_find("fed", 3))
        mr_ok(mr_op_register(&fed, &st), &st);
    feed.rows = feed.chunk = 5;
    feed.bad = -1;
    mr_dataset *ds = mr_drive_build("fed()");
    mr_ok(mr_iterator_open(&it, ds, &(mr_iterator_opts){.block_rows = 2}, &st), &st);
    for (size_t left = 5; left > 0; left -= b.rows) {
        mr_ok(mr_iterator_next(it, 100, &b, &st), &st);
        mr_eq_u64(b.rows, left < 2 ? left : 2);
    }
    mr_code_is(mr_iterator_next(it, 100, &b, &st), MR_END, &st);
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    while (feed.n_held)
        mr_buffer_unref(feed.held[--feed.n_held]);
}

/* What a source has meanwhile is of a later pass. */
MR_TEST(the_end_stays_after_a_restore_though_the_source_has_more)
{
    static const char *const texts[] = {"fed()", "fed().batch(2)", "zip(fed(), range(9))",
                                        "fed().concatenate(range(2))"};
    mr_status st;
    if (!mr_op_find("fed", 3))
        mr_ok(mr_op_register(&fed, &st), &st);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t size;
        mr_events e = {0};
        mr_test_context("%s", texts[i]);
        feed.rows = feed.chunk = 4;
        feed.bad = -1;
        unsigned char *bytes = position_of(texts[i], SIZE_MAX, &size);
        feed.rows = 8;
        mr_code_is(restore_bytes(texts[i], bytes, size, &e), MR_OK, NULL);
        mr_eq_u64(e.n, 0);
        mr_events_reset(&e, 0);
        mr_free(bytes);
    }
    while (feed.n_held)
        mr_buffer_unref(feed.held[--feed.n_held]);
}
