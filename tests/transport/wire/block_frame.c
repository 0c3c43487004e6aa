/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/engine/iterator.h"
#include "tests/fault.h"
#include "tests/harness.h"
#include "transport/wire/block_frame.h"
#include "transport/wire/messages.h"

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
        rc = mr__borrower_wrap(s->borrower, in.memory_at, in.memory, &payload, st);
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
                        mr_check(v[k].size == 0 || v[k].data[v[k].size - 1] >= -128);
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
