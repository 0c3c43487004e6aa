/* SPDX-License-Identifier: Apache-2.0 */
/* Records of many numbers, each with its key: what follows what is learned, and vectors compare. */
#include "pipeline/formats/tfrecord/example.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/varint.h"
#include "tests/harness.h"

MR_ONE_THREAD;

enum { MOST = 30, ROWS = 12, MOST_NAME = 26, MOST_RECORD = MOST * (MOST_NAME + 80) };

typedef struct writer {
    uint8_t *at;
} writer;

static void put(writer *w, const void *bytes, size_t n)
{
    memcpy(w->at, bytes, n);
    w->at += n;
}

static void put_field(writer *w, uint8_t tag, const void *bytes, size_t n)
{
    *w->at++ = tag;
    w->at = mr__varint_put(w->at, n);
    put(w, bytes, n);
}

/* An entry of the map: a key, and a list of the kind of dtype whose field is the n bytes. */
static void put_entry(writer *w, const char *name, size_t n_name, mr_dtype dtype,
                      const void *values, size_t n)
{
    uint8_t list[64], feature[64], entry[64 + MOST_NAME];
    writer l = {list}, f = {feature}, e = {entry};
    put(&l, values, n);
    put_field(&f, dtype == MR_INT64 ? 0x1a : 0x12, list, (size_t)(l.at - list));
    put_field(&e, 0x0a, name, n_name);
    put_field(&e, 0x12, feature, (size_t)(f.at - feature));
    put_field(w, 0x0a, entry, (size_t)(e.at - entry));
}

/* One number in a form that the wire allows: mostly the usual one. */
static void put_number(writer *w, const mr_example_feature *f, uint64_t *state)
{
    uint64_t x = mr_test_random(state), form = mr_test_random(state) % 64;
    uint8_t values[32], number[MR__VARINT_MOST];
    writer v = {values};
    mr_dtype dtype = form == 0 ? (f->dtype == MR_INT64 ? MR_FLOAT32 : MR_INT64) : f->dtype;
    if (dtype == MR_INT64) {
        size_t n = (size_t)(mr__varint_put(number, x >> x % 64) - number);
        if (form == 1) { /* not packed */
            *v.at++ = 0x08;
            put(&v, number, n);
        } else if (form == 2) { /* longer than needed */
            put_field(&v, 0x0a, (const uint8_t[]){0x85, 0x80, 0}, 3);
        } else if (form == 3) { /* never ends */
            put_field(&v, 0x0a, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 1 + x % 11);
        } else if (form == 4) { /* two */
            put_field(&v, 0x0a, (const uint8_t[]){1, 2}, 2);
        } else
            put_field(&v, 0x0a, number, n);
    } else if (form == 1) {
        *v.at++ = 0x0d;
        put(&v, &x, 4);
    } else
        put_field(&v, 0x0a, &x, form == 2 ? 8 : form == 3 ? 3 : 4);
    put_entry(w, f->name, f->name_size, dtype, values, (size_t)(v.at - values));
}

/* A record that ends where its memory does. With `marked`, nothing in it is taken for granted: a
 * field follows that no Example has. */
static mr_bytes record_of(const uint8_t *body, size_t n, bool marked)
{
    uint8_t *record = malloc(n + 20);
    writer w = {record};
    put_field(&w, 0x0a, body, n);
    if (marked)
        put(&w, "\x10\x01", 2);
    size_t size = (size_t)(w.at - record);
    char *exact = malloc(size);
    memcpy(exact, record, size);
    free(record);
    return (mr_bytes){exact, size};
}

static void shuffle(size_t *order, size_t n, uint64_t *state)
{
    for (size_t i = n; i > 1; i--) {
        size_t k = mr_test_random(state) % i, was = order[i - 1];
        order[i - 1] = order[k];
        order[k] = was;
    }
}

/* The features of a record in the order given, and what may be wrong with it. Returns its size. */
static size_t make_body(uint8_t *body, const mr_example_feature *f, size_t n, const size_t *order,
                        uint64_t *state)
{
    writer w = {body};
    uint64_t odd = mr_test_random(state) % 16;
    size_t at = mr_test_random(state) % n;
    for (size_t i = 0; i < n; i++) {
        if (odd == 0 && i == at) /* not requested */
            put_entry(&w, "?", 1, MR_INT64, "\x0a\x01\x07", 3);
        if (odd == 1 && i == at) /* missing */
            continue;
        put_number(&w, &f[order[i]], state);
        if (odd == 2 && i == at) /* twice */
            put_number(&w, &f[order[i]], state);
    }
    size_t size = (size_t)(w.at - body);
    if (odd == 3) /* one byte is another */
        body[mr_test_random(state) % size] ^= (uint8_t)(1u << mr_test_random(state) % 8);
    if (odd == 4) /* cut */
        size -= mr_test_random(state) % (size < 40 ? size : 40);
    return size;
}

static size_t make_features(mr_example_feature *f, char names[][MOST_NAME + 1], uint64_t *state)
{
    static const int64_t minus = -1;
    static const float half = 0.5f;
    size_t n = 1 + mr_test_random(state) % (mr_test_random(state) % 2 ? 5 : MOST),
           length = mr_test_random(state) % 3;
    for (size_t i = 0; i < n; i++) {
        bool is_float = mr_test_random(state) % 2;
        size_t more = length == 0 ? 0 : length == 1 ? 8 : mr_test_random(state) % 23;
        int size = snprintf(names[i], sizeof names[i], "%.*s%c%zu", (int)more,
                            "a_name_that_is_rather_long", is_float ? 'f' : 'i', i);
        f[i] = (mr_example_feature){.name = names[i],
                                    .name_size = (size_t)size,
                                    .dtype = is_float ? MR_FLOAT32 : MR_INT64,
                                    .default_values = is_float ? (const void *)&half : &minus,
                                    .n_default_values = 1};
        if (mr_test_random(state) % 2)
            f[i].default_values = NULL, f[i].n_default_values = 0;
    }
    return n;
}

static void note(void *ctx, size_t row, const mr_status *st)
{
    mr_status *of_rows = ctx;
    of_rows[row] = *st;
}

MR_TEST(many_numbers_are_read_in_any_order_and_form)
{
    mr_status st;
    uint64_t state = mr_test_seed();
    size_t good = 0, bad = 0;
    for (int round = 0; round < 3000; round++) {
        char names[MOST][MOST_NAME + 1];
        mr_example_feature f[MOST];
        mr_bytes records[2][ROWS];
        mr_array columns[2][MOST];
        static mr_status errors[2][ROWS];
        size_t n = make_features(f, names, &state), orders[2][MOST], k = 0;
        mr_example_plan *p = NULL;
        mr_ok(mr_example_plan_new(&p, f, n, &st), &st);
        for (size_t i = 0; i < n; i++)
            orders[0][i] = orders[1][i] = i;
        shuffle(orders[1], n, &state);
        for (size_t r = 0; r < ROWS; r++) {
            static uint8_t body[MOST_RECORD];
            k ^= mr_test_random(&state) % 4 == 0; /* two orders that come back */
            size_t size = make_body(body, f, n, orders[k], &state);
            for (int marked = 0; marked < 2; marked++)
                records[marked][r] = record_of(body, size, marked);
        }
        memset(errors, 0, sizeof errors);
        for (k = 0; k < 2; k++)
            mr_ok(mr_example_parse(p, records[k], ROWS, NULL, columns[k], note, errors[k], &st),
                  &st);
        for (size_t r = 0; r < ROWS; r++) {
            mr_test_context("round %d record %zu", round, r);
            mr_eq_i64(errors[0][r].code, errors[1][r].code);
            errors[0][r].code == MR_OK ? good++ : bad++;
            for (size_t i = 0; i < n; i++) {
                mr_test_context("round %d record %zu feature %s", round, r, f[i].name);
                mr_eq_mem(mr_array_at(&columns[0][i], r), mr_array_at(&columns[1][i], r),
                          mr_array_row_bytes(&columns[0][i]));
            }
        }
        for (k = 0; k < 2; k++) {
            for (size_t i = 0; i < n; i++)
                mr_array_reset(&columns[k][i]);
            for (size_t r = 0; r < ROWS; r++)
                free((void *)(uintptr_t)records[k][r].data);
        }
        mr_example_plan_free(p);
    }
    mr_check(good > 1000);
    mr_check(bad > 1000);
}
