/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of many values in Examples. */
#include <stdlib.h>
#include <string.h>

#include "pipeline/formats/tfrecord/example_wire.h"
#include "pipeline/memory/alloc.h"
#include "tests/harness.h"

MR_ONE_THREAD;

enum { BEFORE = 8, MOST = 200 };

static size_t put_varint(uint8_t *p, uint64_t v)
{
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        p[n++] = (uint8_t)(v | 0x80);
    p[n++] = (uint8_t)v;
    return n;
}

/* The varints at list, which end where its memory ends: the sanitizers see what is read after. */
static bool decode(const uint8_t *list, size_t size, int64_t *to, size_t most, size_t *count)
{
    uint8_t *p = malloc(BEFORE + size);
    memset(p, 0xff, BEFORE);
    memcpy(p + BEFORE, list, size);
    bool ok = mr__packed_ints(p + BEFORE, p + BEFORE + size, to, most, count);
    free(p);
    return ok;
}

MR_TEST(packed_integers_of_any_length_are_decoded)
{
    uint64_t state = mr_test_seed();
    int64_t want[MOST], got[MOST];
    uint8_t list[10 * MOST];
    for (int round = 0; round < 2000; round++) {
        size_t n = mr_test_random(&state) % (MOST + 1), size = 0, last = 0, count = 0;
        uint64_t bits = mr_test_random(&state) % 64 + 1;
        for (size_t i = 0; i < n; i++) {
            uint64_t v = mr_test_random(&state) >> mr_test_random(&state) % bits;
            want[i] = (int64_t)(round % 2 ? v : v >> (64 - bits));
            last = put_varint(list + size, (uint64_t)want[i]);
            size += last;
        }
        mr_test_context("round %d: %zu values in %zu bytes", round, n, size);
        mr_check(decode(list, size, got, MOST, &count));
        mr_eq_u64(count, n);
        mr_eq_mem(got, want, n * sizeof *want);
        if (n)
            mr_check(!decode(list, size, got, n - 1, &count));
        if (last > 1)
            mr_check(!decode(list, size - 1, got, MOST, &count));
    }
}

MR_TEST(packed_integers_of_more_than_ten_bytes_are_refused)
{
    uint8_t list[80];
    int64_t got[80];
    size_t count;
    for (size_t at = 0; at + 11 <= sizeof list; at++)
        for (size_t more = 9; more <= 10; more++) {
            memset(list, 1, sizeof list);
            memset(list + at, 0x80, more); /* zeros, and the byte after them */
            mr_test_context("%zu bytes from %zu on", more + 1, at);
            mr_check(decode(list, sizeof list, got, 80, &count) == (more == 9));
            if (more == 9)
                mr_eq_u64(count, sizeof list - 9);
            if (more == 9 && at)
                mr_eq_i64(got[at], INT64_MIN);
        }
}

enum { ROWS = 9 };

static void note(void *ctx, size_t row, const mr_status *st)
{
    mr_code_is(st->code, MR_INVALID_ARGUMENT, st);
    *(size_t *)ctx = row;
}

/* The room for values is guessed from the rows before. */
MR_TEST(lists_whose_lengths_grow_and_shrink_come_back)
{
    static const size_t lengths[ROWS] = {0, 3, 1000, 1, 0, 5000, 20, 0, 700};
    static int64_t ints[5000];
    static float floats[5000];
    enum { BAD = 4 };
    mr_status st;
    mr_bytes records[ROWS];
    size_t failed = 0;
    mr_array c[2];
    mr_example_plan *p = NULL;
    mr_example_feature f[2] = {{.name = "f", .name_size = 1, .dtype = MR_FLOAT32, .ragged = true},
                               {.name = "i", .name_size = 1, .dtype = MR_INT64, .ragged = true}};
    mr_ok(mr_example_plan_new(&p, f, 2, &st), &st);
    for (size_t i = 0; i < 5000; i++) {
        ints[i] = i % 50 ? (int64_t)(i * i * i) : -(int64_t)i;
        floats[i] = (float)i;
    }
    for (size_t r = 0; r < ROWS; r++) {
        mr_example_value v[2] = {{"f", 1, MR_FLOAT32, floats, lengths[ROWS - 1 - r]},
                                 {"i", 1, MR_INT64, ints, lengths[r]}};
        uint8_t *buffer = NULL;
        size_t capacity = 0, size = 0;
        mr_ok(mr_example_encode(v, 2, &buffer, &capacity, &size, &st), &st);
        records[r] = (mr_bytes){(char *)buffer, size - (r == BAD)};
    }
    mr_ok(mr_example_parse(p, records, ROWS, NULL, c, note, &failed, &st), &st);
    mr_eq_u64(failed, BAD);
    for (size_t r = 0; r < ROWS; r++) {
        const mr_row *a = (const mr_row *)c[0].data + r, *b = (const mr_row *)c[1].data + r;
        mr_test_context("row %zu", r);
        mr_eq_i64(a->shape[0], r == BAD ? 0 : lengths[ROWS - 1 - r]);
        mr_eq_i64(b->shape[0], r == BAD ? 0 : lengths[r]);
        mr_eq_mem(a->data, floats, (size_t)a->shape[0] * sizeof(float));
        mr_eq_mem(b->data, ints, (size_t)b->shape[0] * sizeof(int64_t));
        free((void *)(uintptr_t)records[r].data);
    }
    mr_array_reset(&c[0]);
    mr_array_reset(&c[1]);
    mr_example_plan_free(p);
}

static size_t largest; /* that was asked for */

static void *note_malloc(void *ctx, size_t bytes)
{
    (void)ctx;
    largest = bytes > largest ? bytes : largest;
    return malloc(bytes);
}

static void *note_realloc(void *ctx, void *old, size_t bytes)
{
    (void)ctx;
    return realloc(old, bytes);
}

static void *plain_aligned(void *ctx, size_t alignment, size_t bytes)
{
    void *p = NULL;
    (void)ctx;
    return posix_memalign(&p, alignment, bytes) == 0 ? p : NULL;
}

static void plain_free(void *ctx, void *p)
{
    (void)ctx;
    free(p);
}

/* The rows after a long one are large because of a feature that was not requested. */
MR_TEST(room_for_lists_to_come_is_no_more_than_some_times_what_there_is)
{
    enum { N = 400, LONG = 100000 };
    static const mr_allocator noting = {note_malloc, note_realloc, plain_aligned, plain_free, NULL};
    static int64_t ints[LONG];
    static float floats[LONG];
    mr_status st;
    mr_bytes records[N];
    mr_array c;
    mr_example_plan *p = NULL;
    mr_example_feature f = {.name = "i", .name_size = 1, .dtype = MR_INT64, .ragged = true};
    mr_ok(mr_example_plan_new(&p, &f, 1, &st), &st);
    for (size_t r = 0; r < 2; r++) {
        mr_example_value v[2] = {{"f", 1, MR_FLOAT32, floats, r ? LONG : 0},
                                 {"i", 1, MR_INT64, ints, r ? 3 : LONG}};
        uint8_t *buffer = NULL;
        size_t capacity = 0, size = 0;
        mr_ok(mr_example_encode(v, 2, &buffer, &capacity, &size, &st), &st);
        records[r] = (mr_bytes){(char *)buffer, size};
    }
    for (size_t r = 2; r < N; r++)
        records[r] = records[1];
    mr_allocator_set(&noting);
    mr_ok(mr_example_parse(p, records, N, NULL, &c, NULL, NULL, &st), &st);
    mr_check(largest < 20 * LONG * sizeof(int64_t)); /* not N * LONG */
    mr_eq_i64(((const mr_row *)c.data)[0].shape[0], LONG);
    mr_eq_i64(((const mr_row *)c.data)[N - 1].shape[0], 3);
    mr_array_reset(&c);
    mr_example_plan_free(p);
    free((void *)(uintptr_t)records[0].data);
    free((void *)(uintptr_t)records[1].data);
}
