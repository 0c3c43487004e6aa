/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/crc32c.h"
#include "pipeline/system/system.h"
#include "tests/fault.h"
#include "tests/harness.h"
#include "transport/wire/block_frame.h"
#include "transport/wire/messages.h"
#include "transport/wire/messages.pb-c.h"

MR_ONE_THREAD;

/* Every storage, empty strings and tensors, long strings that are sent in place. */
static const char *const graphs[] = {
    "range(7)",
    "range(1000).batch(10)",
    "range(3).map(x => {\"a\": cast(x, \"float32\"), \"b\": zeros([0, 4]), \"c\": \"\"})",
    "from_tensor_slices([\"\", \"a\", \"bc\", \"\"])",
    "from_tensors(\"x\").repeat(3).map(x => (x, x + x, 1))",
    "range(5).map(x => zeros([x]))",
    "range(4).window(2)",
    "range(1).map(x => zeros([300, 100], \"uint8\"))",
};
enum { N_GRAPHS = sizeof graphs / sizeof *graphs };

static void block_of(const char *text, mr_block *b, mr_dataset **ds)
{
    mr_status st;
    mr_iterator *it = NULL;
    mr_test_context("%s", text);
    mr_ok(mr_dataset_from_text(text, strlen(text), NULL, ds, &st), &st);
    mr_ok(mr_iterator_open(&it, *ds, &(mr_iterator_opts){.has_threads = true}, &st), &st);
    mr_ok(mr_iterator_next(it, 1000, b, &st), &st);
    mr_iterator_close(it);
}

/* All pieces as one stretch of memory. */
static uint8_t *join(const mr__outgoing *o)
{
    uint8_t *all = malloc(o->bytes), *at = all;
    for (size_t i = 0; i < o->n; i++) {
        memcpy(at, o->v[i].iov_base, o->v[i].iov_len);
        at += o->v[i].iov_len;
    }
    mr_eq_u64((size_t)(at - all), o->bytes);
    return all;
}

enum { PIECE = 333 };

/* What a receiver makes of a frame. */
static mr_code read_frame(const uint8_t *bytes, size_t size, const mr_spec *spec, mr__incoming *in,
                          mr_block *b, mr_status *st)
{
    mr__frame f;
    if (size < MR__FRAME_BYTES)
        return mr_fail(st, MR_DATA_LOSS, "cut short");
    MR_TRY(mr__frame_get(bytes, MR__FRAME_MOST_HEAD, &f, st));
    if (f.kind != MR__FRAME_BLOCK || f.head_bytes > size - MR__FRAME_BYTES ||
        f.payload_bytes > size - MR__FRAME_BYTES - f.head_bytes)
        return mr_fail(st, MR_DATA_LOSS, "cut short");
    MR_TRY(mr__frame_check_head(&f, bytes, bytes + MR__FRAME_BYTES, st));
    MR_TRY(mr__incoming_head(in, bytes + MR__FRAME_BYTES, f.head_bytes, f.payload_bytes, st));
    mr_buffer *payload;
    MR_TRY(mr_buffer_alloc(&payload, (size_t)f.payload_bytes, st));
    memcpy(mr_buffer_data(payload), bytes + MR__FRAME_BYTES + f.head_bytes,
           (size_t)f.payload_bytes);
    /* Some of it comes in pieces, the rest with the block. */
    size_t came = (size_t)f.payload_bytes / 3 * 2;
    for (size_t i = 0, n; i < came; i += n) {
        n = came - i < PIECE ? came - i : PIECE;
        mr__incoming_came(in, (const char *)mr_buffer_data(payload) + i, n);
    }
    return mr__incoming_block(in, payload, spec, b, st);
}

static const mr__block_place place = {.job = 7,
                                      .stream = 3,
                                      .generation = 5,
                                      .first = 1ull << 40,
                                      .position = "where it stands",
                                      .position_bytes = 15};

static void same(const mr_block *a, const mr_block *b)
{
    void *x, *y;
    size_t n, m;
    mr_status st;
    mr_ok(mr_block_to_bytes(a, &x, &n, &st), &st);
    mr_ok(mr_block_to_bytes(b, &y, &m, &st), &st);
    mr_eq_u64(n, m);
    mr_eq_mem(x, y, n);
    mr_free(x);
    mr_free(y);
}

MR_TEST(every_kind_of_column_comes_out_as_it_went_in)
{
    for (size_t g = 0; g < N_GRAPHS; g++)
        for (int level = 0; level < 3; level++) {
            mr_block b = MR_BLOCK_EMPTY, copy = MR_BLOCK_EMPTY, got = MR_BLOCK_EMPTY;
            mr_dataset *ds;
            mr__outgoing o = {0};
            mr__incoming in = {0};
            mr_status st;
            block_of(graphs[g], &b, &ds);
            mr_ok(mr_block_slice(&copy, &b, 0, b.rows, &st), &st);
            mr_ok(mr__outgoing_block(&o, &place, &b, level, &st), &st);
            mr_eq_u64(b.rows, 0);
            uint8_t *all = join(&o);
            mr_ok(read_frame(all, o.bytes, mr_dataset_spec(ds), &in, &got, &st), &st);
            mr_eq_u64(in.place.job, 7);
            mr_eq_u64(in.place.stream, 3);
            mr_eq_u64(in.place.generation, 5);
            mr_eq_u64(in.place.first, 1ull << 40);
            mr_eq_mem(in.place.position, "where it stands", 15);
            same(&copy, &got);
            free(all);
            mr__incoming_reset(&in);
            mr__outgoing_reset(&o);
            mr_block_reset(&copy);
            mr_block_reset(&got);
            mr_block_reset(&b);
            mr_dataset_unref(ds);
        }
}

/* Two ends of shared memory. */
typedef struct shared {
    mr__lender *lender;
    mr__borrower *borrower;
} shared;

static void share(shared *s, size_t bytes)
{
    mr_status st;
    int fd;
    mr_ok(mr__lender_new(&s->lender, bytes, &fd, &st), &st);
    mr_ok(mr__borrower_new(&s->borrower, fd, bytes, &st), &st);
    close(fd);
}

static void unshare(shared *s)
{
    mr__borrower_unref(s->borrower);
    mr__lender_unref(s->lender);
}

/* What a receiver makes of a frame whose payload lies in shared memory; in is reset. */
static mr_code read_lent(const mr__outgoing *o, const shared *s, const mr_spec *spec, mr_block *b,
                         mr_status *st)
{
    mr__frame f;
    mr__incoming in = {0};
    mr_buffer *payload = NULL;
    uint8_t *all = join(o);
    mr_code rc = mr__frame_get(all, MR__FRAME_MOST_HEAD, &f, st);
    if (rc == MR_OK)
        rc = mr__incoming_head(&in, all + MR__FRAME_BYTES, f.head_bytes, f.payload_bytes, st);
    if (rc == MR_OK)
        rc = mr__borrower_wrap(s->borrower, in.memory_at, in.memory, in.raw, &payload, st);
    in.shared = mr__borrower_memory(s->borrower, &in.shared_bytes);
    if (rc == MR_OK)
        rc = mr__incoming_block(&in, payload, spec, b, st);
    mr__incoming_reset(&in);
    free(all);
    return rc;
}

/* Blocks of at least MR__LEND_LEAST bytes, of every form. */
static const char *const large[] = {
    "range(10000).map(x => (x, x * x))",
    "range(100000).batch(5000).map(x => (x, cast(x, \"float32\"), 1))",
    "range(8).map(x => (zeros([10000]), \"\", zeros([0, 4])))",
    "range(1).map(x => zeros([300, 100], \"uint8\"))",
    "from_tensors(\"0123456789\").repeat(2000).batch(700).map(x => (x, x + x))",
    "range(20).map(x => zeros([5000 + x]))",
};

MR_TEST(blocks_in_shared_memory_come_out_as_they_went_in)
{
    for (size_t g = 0; g < sizeof large / sizeof *large; g++) {
        shared s;
        mr_block b = MR_BLOCK_EMPTY, copy = MR_BLOCK_EMPTY, got = MR_BLOCK_EMPTY;
        mr__block_place to = place;
        mr_dataset *ds;
        mr__outgoing o = {0};
        mr_status st;
        uint64_t at;
        share(&s, (size_t)16 << 20);
        to.lender = s.lender;
        block_of(large[g], &b, &ds);
        mr_ok(mr_block_slice(&copy, &b, 0, b.rows, &st), &st);
        mr_ok(mr__outgoing_block(&o, &to, &b, (int)(g % 2), &st), &st);
        mr_check(o.lender == s.lender);
        mr_check(o.raw >= MR__LEND_LEAST);
        mr_check(o.bytes < 1000);
        mr_ok(read_lent(&o, &s, mr_dataset_spec(ds), &got, &st), &st);
        same(&copy, &got);
        mr__outgoing_sent(&o); /* the receiver's now */
        mr_check(mr__lender_held(s.lender) >= MR__LEND_LEAST);
        mr_block_reset(&got);
        mr_eq_u64(mr__borrower_done(s.borrower, 0, &at, 1), 1);
        mr_check(mr__lender_give(s.lender, at));
        /* One that is not sent takes nothing. */
        mr_ok(mr__outgoing_block(&o, &to, &copy, 0, &st), &st);
        mr__outgoing_reset(&o);
        mr_eq_u64(mr__lender_held(s.lender), 0);
        mr_block_reset(&copy);
        mr_block_reset(&b);
        mr_dataset_unref(ds);
        unshare(&s);
    }
}

MR_TEST(blocks_that_have_no_room_in_shared_memory_follow_their_head)
{
    shared s;
    mr_block b = MR_BLOCK_EMPTY, got = MR_BLOCK_EMPTY;
    mr__block_place to = place;
    mr_dataset *ds;
    mr__outgoing o = {0};
    mr__incoming in = {0};
    mr_status st;
    share(&s, 64 << 10);
    to.lender = s.lender;
    for (int small = 0; small < 2; small++) {
        block_of(small ? "range(100)" : "range(10000)", &b, &ds);
        mr_ok(mr__outgoing_block(&o, &to, &b, 0, &st), &st);
        mr_check(!o.lender);
        uint8_t *all = join(&o);
        mr_ok(read_frame(all, o.bytes, mr_dataset_spec(ds), &in, &got, &st), &st);
        mr_eq_u64(got.rows, small ? 100 : 1000);
        free(all);
        mr__incoming_reset(&in);
        mr__outgoing_reset(&o);
        mr_block_reset(&got);
        mr_dataset_unref(ds);
    }
    unshare(&s);
}

static volatile int seen; /* what is read must be read */

/* A peer that writes whatever it likes there while the block is read. */
MR_TEST(garbage_in_shared_memory_is_a_block_of_garbage_or_refused)
{
    uint64_t random = mr_test_seed();
    for (size_t g = 0; g < sizeof large / sizeof *large; g++) {
        shared s;
        mr_block b = MR_BLOCK_EMPTY, got = MR_BLOCK_EMPTY;
        mr__block_place to = place;
        mr_dataset *ds;
        mr__outgoing o = {0};
        mr_status st;
        uint64_t at, unused;
        share(&s, (size_t)16 << 20);
        unsigned char *memory = mr__lender_take(s.lender, 4096, &at);
        mr__lender_give(s.lender, at);
        to.lender = s.lender;
        block_of(large[g], &b, &ds);
        mr_ok(mr__outgoing_block(&o, &to, &b, 0, &st), &st);
        mr_check(o.lender != NULL);
        for (int i = 0; i < 500; i++) {
            for (int k = 0; k < 20; k++)
                memory[mr_test_random(&random) % (i % 2 ? o.raw : 200)] =
                    (unsigned char)mr_test_random(&random);
            mr_code rc = read_lent(&o, &s, mr_dataset_spec(ds), &got, &st);
            mr_check(rc == MR_OK || rc == MR_DATA_LOSS || rc == MR_RESOURCE_EXHAUSTED);
            for (size_t c = 0; rc == MR_OK && c < got.n_columns; c++)
                if (got.columns[c].storage == MR_BYTES) {
                    const mr_bytes *v = got.columns[c].data;
                    size_t n = got.rows * mr_array_row_values(&got.columns[c]);
                    for (size_t k = 0; k < n; k++)
                        seen = seen + (v[k].size ? v[k].data[v[k].size - 1] : 0);
                }
            mr_block_reset(&got);
            (void)!mr__borrower_done(s.borrower, 0, &unused, 1);
        }
        mr__outgoing_reset(&o);
        mr_block_reset(&b);
        mr_dataset_unref(ds);
        unshare(&s);
    }
}

enum { RECORD = 1000, IN_LANDING = 500 };

/* `rows` of the records in a landing of IN_LANDING, each with its number; the first one is empty.
 * What they lie in is held by the block alone. */
static void landed_block(const shared *s, size_t rows, mr_block *b)
{
    mr_status st;
    mr_buffer *landing = mr__lender_land(s->lender, IN_LANDING * RECORD);
    mr_check(landing != NULL);
    char *p = mr_buffer_data(landing);
    for (size_t i = 0; i < IN_LANDING * RECORD; i++)
        p[i] = (char)('a' + i % 23);
    mr_ok(mr_block_prepare(b, 2, &st), &st);
    mr_ok(mr_array_alloc(&b->columns[0], MR_STRING, 0, NULL, rows, &st), &st);
    mr_ok(mr_array_alloc(&b->columns[1], MR_INT64, 0, NULL, rows, &st), &st);
    b->rows = rows;
    for (size_t i = 0; i < rows; i++) {
        ((mr_bytes *)b->columns[0].data)[i] = (mr_bytes){p + i * RECORD, i ? RECORD - i % 7 : 0};
        ((int64_t *)b->columns[1].data)[i] = (int64_t)i;
    }
    mr_ok(mr_buffer_hold(b->columns[0].owner, landing, &st), &st);
    mr_buffer_unref(landing);
}

static const char landed_text[] = "from_tensors(\"x\").map(x => (x, 1))";

MR_TEST(strings_that_landed_in_shared_memory_are_named_by_their_places)
{
    static const size_t rows[] = {IN_LANDING, IN_LANDING / 4 + 3};
    for (size_t k = 0; k < 2; k++) {
        shared s;
        mr_block b = MR_BLOCK_EMPTY, copy = MR_BLOCK_EMPTY, got = MR_BLOCK_EMPTY,
                 unused = MR_BLOCK_EMPTY;
        mr__block_place to = place;
        mr_dataset *ds;
        mr__outgoing o = {0};
        mr_status st;
        uint64_t at;
        size_t n, bytes = 0;
        share(&s, (size_t)16 << 20);
        to.lender = s.lender;
        block_of(landed_text, &unused, &ds);
        landed_block(&s, rows[k], &b);
        const mr_bytes *v = b.columns[0].data;
        for (size_t i = 0; i < b.rows; i++)
            bytes += v[i].size;
        void *want;
        mr_ok(mr_block_to_bytes(&b, &want, &n, &st), &st);
        mr_ok(mr__outgoing_block(&o, &to, &b, 1, &st), &st);
        mr_check(o.lender == s.lender && o.bytes < 1000);
        mr_check(o.raw >= bytes + 16 * rows[k] && o.raw < bytes + 17 * rows[k] + 64);
        mr_eq_u64(mr__lender_held(s.lender) / 4096,
                  (IN_LANDING * RECORD + 4095 + 64) / 4096 + (16 * rows[k] + 4095) / 4096);
        mr_ok(read_lent(&o, &s, mr_dataset_spec(ds), &got, &st), &st);
        mr__outgoing_sent(&o);
        v = got.columns[0].data;
        const uint8_t *memory = mr__borrower_memory(s.borrower, &n);
        mr_check((const uint8_t *)v[1].data >= memory && (const uint8_t *)v[1].data < memory + n);
        void *have;
        mr_ok(mr_block_to_bytes(&got, &have, &bytes, &st), &st);
        mr_eq_mem(want, have, bytes);
        mr_check(mr__lender_held(s.lender) > IN_LANDING * RECORD); /* no other block holds it */
        mr_block_reset(&got);
        mr_eq_u64(mr__borrower_done(s.borrower, RECORD * rows[k] / 2, &at, 1), 1);
        mr_check(mr__lender_give(s.lender, at));
        mr_eq_u64(mr__lender_held(s.lender), 0);
        mr_free(want);
        mr_free(have);
        mr_block_reset(&copy);
        mr_block_reset(&unused);
        mr_dataset_unref(ds);
        unshare(&s);
    }
}

/* They are copied where too few of what landed are sent, where one is not of the landing, and where
 * the borrower has gone. */
MR_TEST(strings_are_copied_where_naming_their_places_would_keep_too_much)
{
    for (size_t k = 0; k < 3; k++) {
        shared s;
        mr_block b = MR_BLOCK_EMPTY, unused = MR_BLOCK_EMPTY, got = MR_BLOCK_EMPTY;
        mr__block_place to = place;
        mr_dataset *ds;
        mr__outgoing o = {0};
        mr_status st;
        share(&s, (size_t)16 << 20);
        to.lender = s.lender;
        block_of(landed_text, &unused, &ds);
        landed_block(&s, k == 0 ? IN_LANDING / 4 - 3 : IN_LANDING, &b);
        if (k == 1)
            ((mr_bytes *)b.columns[0].data)[7] = (mr_bytes){"elsewhere", 9};
        if (k == 2)
            mr__lender_end(s.lender);
        mr_ok(mr__outgoing_block(&o, &to, &b, 0, &st), &st);
        if (k < 2) {
            mr_ok(read_lent(&o, &s, mr_dataset_spec(ds), &got, &st), &st);
            mr_check(mr__lender_held(s.lender) < (o.raw + 8191)); /* the landing has gone */
        } else {
            mr__incoming in = {0};
            mr_check(!o.lender && o.bytes > (IN_LANDING - 1) * (RECORD - 7));
            uint8_t *all = join(&o);
            mr_ok(read_frame(all, o.bytes, mr_dataset_spec(ds), &in, &got, &st), &st);
            mr__incoming_reset(&in);
            free(all);
        }
        mr_eq_mem(((const mr_bytes *)got.columns[0].data)[9].data, "hijklmnopq", 10);
        mr__outgoing_reset(&o);
        mr_block_reset(&got);
        mr_eq_u64(mr__lender_held(s.lender), 0);
        mr_block_reset(&unused);
        mr_dataset_unref(ds);
        unshare(&s);
    }
}

/* As garbage_in_shared_memory_..., with places, each of which may be anywhere in what is shared and
 * nowhere else. */
MR_TEST(garbage_for_places_is_a_block_of_what_is_shared_or_refused)
{
    uint64_t random = mr_test_seed(), at, unused_at;
    shared s;
    mr_block b = MR_BLOCK_EMPTY, got = MR_BLOCK_EMPTY, unused = MR_BLOCK_EMPTY;
    mr__block_place to = place;
    mr_dataset *ds;
    mr__outgoing o = {0};
    mr_status st;
    size_t n, taken = 0;
    share(&s, (size_t)16 << 20);
    to.lender = s.lender;
    block_of(landed_text, &unused, &ds);
    landed_block(&s, IN_LANDING, &b);
    mr_ok(mr__outgoing_block(&o, &to, &b, 0, &st), &st);
    mr_check(o.lender != NULL);
    uint8_t *memory = (uint8_t *)(uintptr_t)mr__lender_memory(s.lender, &n);
    uint32_t *places = (uint32_t *)(void *)(memory + o.lent_at), good[2 * IN_LANDING];
    memcpy(good, places, sizeof good);
    for (int i = 0; i < 3000; i++) {
        size_t k = 2 * (1 + mr_test_random(&random) % (IN_LANDING - 1));
        uint32_t x = (uint32_t)mr_test_random(&random);
        memcpy(places, good, sizeof good);
        if (i % 4 == 0) /* the sum of the lengths is kept */
            places[k] = x % (32u << 20);
        else if (i % 4 == 1)
            places[k] = (uint32_t)n - MR_SLACK - places[k + 1] + x % 2;
        else
            places[k + x % 2] = x >> x % 32;
        mr_code rc = read_lent(&o, &s, mr_dataset_spec(ds), &got, &st);
        mr_check(rc == MR_OK || rc == MR_DATA_LOSS);
        taken += rc == MR_OK;
        const mr_bytes *v = rc == MR_OK ? got.columns[0].data : NULL;
        const char *all = (const char *)mr__borrower_memory(s.borrower, &n);
        for (size_t j = 0; v && j < got.rows; j++) {
            mr_check(v[j].size <= n - MR_SLACK &&
                     (size_t)(v[j].data - all) <= n - MR_SLACK - v[j].size);
            seen = seen + (v[j].size ? v[j].data[0] + v[j].data[v[j].size + MR_SLACK - 1] : 0);
        }
        mr_block_reset(&got);
        (void)!mr__borrower_done(s.borrower, 0, &unused_at, 1);
    }
    mr_check(taken > 100 && taken < 2900);
    at = o.lent_at;
    mr__outgoing_sent(&o);
    mr_check(mr__lender_give(s.lender, at));
    mr_block_reset(&unused);
    mr_dataset_unref(ds);
    unshare(&s);
}

/* What no sender writes: places without shared memory, and bytes elsewhere that are not there. */
MR_TEST(heads_with_wrong_places_are_refused)
{
    static const struct {
        Mr__Wire__Form form;
        uint64_t memory, elsewhere, payload, bytes;
        const char *says;
    } wrong[] = {
        {MR__WIRE__FORM__PLACES, 0, 0, 8, 8, "another form"},
        {MR__WIRE__FORM__STRINGS, 0, 1, 8, 8, "two places"},
        {MR__WIRE__FORM__PLACES, 64, 1, 0, 8, "another number of bytes"},
        {MR__WIRE__FORM__STRINGS, 64, 1, 0, 8, "another number of bytes"},
        {MR__WIRE__FORM__PLACES, 64, (uint64_t)1 << 62, 0, 8, "out of range"},
        {MR__WIRE__FORM__PLACES, 64, 0, 0, 16, "another shape"},
    };
    mr_block unused = MR_BLOCK_EMPTY, got = MR_BLOCK_EMPTY;
    mr_dataset *ds;
    shared s;
    share(&s, (size_t)1 << 20);
    block_of("from_tensors(\"x\")", &unused, &ds);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        Mr__Wire__Column column = MR__WIRE__COLUMN__INIT, *list = &column;
        Mr__Wire__BlockHead head = MR__WIRE__BLOCK_HEAD__INIT;
        uint8_t bytes[200], payload[64] = {0};
        mr__incoming in = {0};
        mr_buffer *there = NULL;
        mr_status st;
        column.form = wrong[i].form;
        column.dtype = MR_STRING;
        column.bytes = wrong[i].bytes;
        head.rows = 1;
        head.n_columns = 1;
        head.columns = &list;
        head.memory = wrong[i].memory;
        head.elsewhere = wrong[i].elsewhere;
        size_t sent = head.memory ? 0 : 64;
        head.crc = mr_crc32c(payload, sent);
        size_t n = mr__wire__block_head__pack(&head, bytes);
        mr_test_context("%zu", i);
        mr_code rc = mr__incoming_head(&in, bytes, n, sent, &st);
        if (rc == MR_OK && head.memory) {
            mr_ok(mr__borrower_wrap(s.borrower, 0, head.memory, 0, &there, &st), &st);
            in.shared = mr__borrower_memory(s.borrower, &in.shared_bytes);
        } else if (rc == MR_OK) {
            mr_ok(mr_buffer_alloc(&there, sent, &st), &st);
            memcpy(mr_buffer_data(there), payload, sent);
        }
        if (rc == MR_OK)
            rc = mr__incoming_block(&in, there, mr_dataset_spec(ds), &got, &st);
        mr_code_is(rc, MR_DATA_LOSS, &st);
        mr_has_str(st.message, wrong[i].says);
        mr__incoming_reset(&in);
    }
    mr_block_reset(&unused);
    mr_block_reset(&got);
    mr_dataset_unref(ds);
    unshare(&s);
}

MR_TEST(places_for_which_memory_runs_out_are_copied_or_fail)
{
    mr_block unused = MR_BLOCK_EMPTY;
    mr_dataset *ds;
    block_of(landed_text, &unused, &ds);
    mr_fault_each_allocation(n)
    {
        shared s = {0};
        mr_block b = MR_BLOCK_EMPTY, got = MR_BLOCK_EMPTY;
        mr__block_place to = place;
        mr__outgoing o = {0};
        mr_status st;
        int fd = -1;
        mr_code rc = mr__lender_new(&s.lender, (size_t)16 << 20, &fd, &st);
        if (rc == MR_OK)
            rc = mr__borrower_new(&s.borrower, fd, (size_t)16 << 20, &st);
        mr_buffer *landing = rc == MR_OK ? mr__lender_land(s.lender, IN_LANDING * RECORD) : NULL;
        to.lender = s.lender;
        if (rc == MR_OK)
            rc = mr_block_prepare(&b, 2, &st);
        for (size_t c = 0; rc == MR_OK && c < 2; c++)
            rc = mr_array_alloc(&b.columns[c], c ? MR_INT64 : MR_STRING, 0, NULL, 400, &st);
        if (rc == MR_OK && landing)
            rc = mr_buffer_hold(b.columns[0].owner, landing, &st);
        for (size_t i = 0; rc == MR_OK && i < 400; i++) {
            ((mr_bytes *)b.columns[0].data)[i] =
                landing ? (mr_bytes){(char *)mr_buffer_data(landing) + i * RECORD, RECORD}
                        : (mr_bytes){"some string of some bytes", 25};
            ((int64_t *)b.columns[1].data)[i] = 1;
        }
        b.rows = rc == MR_OK ? 400 : 0;
        mr_buffer_unref(landing);
        if (rc == MR_OK)
            rc = mr__outgoing_block(&o, &to, &b, 0, &st);
        if (rc == MR_OK && o.lender)
            rc = read_lent(&o, &s, mr_dataset_spec(ds), &got, &st);
        mr_fault_expect(rc, &st);
        mr__outgoing_reset(&o);
        mr_block_reset(&b);
        mr_block_reset(&got);
        if (s.lender)
            mr_eq_u64(mr__lender_held(s.lender), 0);
        unshare(&s);
        if (fd >= 0)
            mr__sys->close(fd);
    }
    mr_block_reset(&unused);
    mr_dataset_unref(ds);
}

MR_TEST(values_and_long_strings_are_sent_from_where_they_lie)
{
    mr_array v[2];
    mr_status st;
    int64_t shape[1] = {1 << 16};
    mr_ok(mr_array_alloc(&v[0], MR_FLOAT32, 1, shape, 2, &st), &st);
    memset(v[0].data, 0, 2 * sizeof(float) << 16);
    mr_ok(mr_array_alloc(&v[1], MR_STRING, 0, NULL, 2, &st), &st);
    mr_buffer *text;
    mr_ok(mr_buffer_alloc(&text, 1 << 20, &st), &st);
    memset(mr_buffer_data(text), 'x', 1 << 20);
    mr_bytes *s = v[1].data;
    s[0] = (mr_bytes){mr_buffer_data(text), 1 << 20};
    s[1] = (mr_bytes){"short", 5};
    mr_ok(mr_buffer_hold(v[1].owner, text, &st), &st);
    mr_buffer_unref(text);
    mr_block b = MR_BLOCK_EMPTY;
    mr_ok(mr_block_prepare(&b, 2, &st), &st);
    b.columns[0] = v[0];
    b.columns[1] = v[1];
    b.rows = 2;
    mr__outgoing o = {0};
    mr_ok(mr__outgoing_block(&o, &place, &b, 0, &st), &st);
    bool values = false, string = false;
    for (size_t i = 0; i < o.n; i++) {
        values |= o.v[i].iov_base == v[0].data;
        string |= o.v[i].iov_base == s[0].data;
    }
    mr_check(values && string);
    mr__outgoing_reset(&o);
    mr_block_reset(&b);
}

MR_TEST(no_cut_and_no_flipped_bit_is_taken_for_a_block)
{
    for (size_t g = 0; g < N_GRAPHS; g++) {
        mr_block b = MR_BLOCK_EMPTY, got = MR_BLOCK_EMPTY;
        mr_dataset *ds;
        mr__outgoing o = {0};
        mr_status st;
        block_of(graphs[g], &b, &ds);
        mr_ok(mr__outgoing_block(&o, &place, &b, (int)(g % 2), &st), &st);
        uint8_t *all = join(&o);
        uint64_t random = mr_test_seed();
        size_t step = o.bytes > 2000 && !mr_test_long() ? o.bytes / 500 : 1;
        for (size_t i = 0; i < o.bytes; i += 1 + mr_test_random(&random) % step) {
            mr__incoming in = {0};
            uint8_t *cut = malloc(i + 1);
            memcpy(cut, all, i);
            mr_code_is(read_frame(cut, i, mr_dataset_spec(ds), &in, &got, &st), MR_DATA_LOSS, &st);
            free(cut);
            mr__incoming_reset(&in);
            all[i] ^= (uint8_t)(1u << (mr_test_random(&random) % 8));
            mr_code rc = read_frame(all, o.bytes, mr_dataset_spec(ds), &in, &got, &st);
            mr_check(rc == MR_DATA_LOSS || rc == MR_RESOURCE_EXHAUSTED);
            mr__incoming_reset(&in);
            size_t at = 0; /* back to what was sent */
            for (size_t k = 0; k < o.n; at += o.v[k++].iov_len)
                if (i >= at && i < at + o.v[k].iov_len)
                    all[i] = ((uint8_t *)o.v[k].iov_base)[i - at];
        }
        free(all);
        mr__outgoing_reset(&o);
        mr_block_reset(&b);
        mr_block_reset(&got);
        mr_dataset_unref(ds);
    }
}

MR_TEST(block_of_another_type_is_refused)
{
    mr_block b = MR_BLOCK_EMPTY, got = MR_BLOCK_EMPTY, unused = MR_BLOCK_EMPTY;
    mr_dataset *ds, *other;
    mr__outgoing o = {0};
    mr__incoming in = {0};
    mr_status st;
    block_of("range(4).map(x => cast(x, \"float32\"))", &unused, &other);
    block_of("range(4)", &b, &ds);
    mr_ok(mr__outgoing_block(&o, &place, &b, 0, &st), &st);
    uint8_t *all = join(&o);
    mr_code_is(read_frame(all, o.bytes, mr_dataset_spec(other), &in, &got, &st), MR_DATA_LOSS, &st);
    mr_has_str(st.message, "another type");
    free(all);
    mr__incoming_reset(&in);
    mr__outgoing_reset(&o);
    mr_block_reset(&b);
    mr_block_reset(&unused);
    mr_block_reset(&got);
    mr_dataset_unref(ds);
    mr_dataset_unref(other);
}

MR_TEST(memory_that_runs_out_leaves_nothing)
{
    for (size_t g = 0; g < N_GRAPHS; g++)
        mr_fault_each_allocation(n)
        {
            mr_block b = MR_BLOCK_EMPTY, got = MR_BLOCK_EMPTY;
            mr_dataset *ds = NULL;
            mr_iterator *it = NULL;
            mr__outgoing o = {0};
            mr__incoming in = {0};
            mr_status st;
            mr_code rc = mr_dataset_from_text(graphs[g], strlen(graphs[g]), NULL, &ds, &st);
            if (rc == MR_OK)
                rc = mr_iterator_open(&it, ds, &(mr_iterator_opts){.has_threads = true}, &st);
            if (rc == MR_OK)
                rc = mr_iterator_next(it, 1000, &b, &st);
            if (rc == MR_OK)
                rc = mr__outgoing_block(&o, &place, &b, 0, &st);
            if (rc == MR_OK) {
                uint8_t *all = join(&o);
                rc = read_frame(all, o.bytes, mr_dataset_spec(ds), &in, &got, &st);
                free(all);
            }
            mr_fault_expect(rc, &st);
            mr__incoming_reset(&in);
            mr__outgoing_reset(&o);
            mr_block_reset(&b);
            mr_block_reset(&got);
            mr_iterator_close(it);
            mr_dataset_unref(ds);
        }
}
