/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/tfrecord/example.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness.h"
#include "tests/pipeline/memory/fail_nth.h"

MR_ONE_THREAD;

#define LIT(text) ((mr_bytes){text, sizeof(text) - 1})

typedef struct errors {
    size_t n, row[16];
    mr_status st[16];
} errors;

static void note(void *ctx, size_t row, const mr_status *st)
{
    errors *e = ctx;
    e->row[e->n] = row;
    e->st[e->n++] = *st;
}

static mr_example_plan *plan_of(const mr_example_feature *f, size_t n)
{
    mr_status st;
    mr_example_plan *p = NULL;
    mr_ok(mr_example_plan_new(&p, f, n, &st), &st);
    return p;
}

/* Examples by hand. a: int64 [v...], packed. */
#define A_EMPTY_FEATURE                                                                            \
    "\x0a\x07\x0a\x05\x0a\x01"                                                                     \
    "a\x12\x00"
#define A_5                                                                                        \
    "\x0a\x0c\x0a\x0a\x0a\x01"                                                                     \
    "a\x12\x05\x1a\x03\x0a\x01\x05"
#define A_6_UNPACKED                                                                               \
    "\x0a\x0b\x0a\x09\x0a\x01"                                                                     \
    "a\x12\x04\x1a\x02\x08\x06"
#define A_7_8                                                                                      \
    "\x0a\x0d\x0a\x0b\x0a\x01"                                                                     \
    "a\x12\x06\x1a\x04\x0a\x02\x07\x08"
/* It ends within its number, all of which would be there. */
#define A_CUT                                                                                      \
    "\x0a\x0c\x0a\x0b\x0a\x01"                                                                     \
    "a\x12\x06\x1a\x04\x0a\x02\x87"
#define A_FLOAT                                                                                    \
    "\x0a\x0f\x0a\x0d\x0a\x01"                                                                     \
    "a\x12\x08\x12\x06\x0a\x04\0\0\x80\x3f"
#define A_NO_VALUES                                                                                \
    "\x0a\x09\x0a\x07\x0a\x01"                                                                     \
    "a\x12\x02\x1a\x00"
#define UNKNOWN_FIELDS                                                                             \
    "\x10\x01\x19"                                                                                 \
    "12345678"                                                                                     \
    "\x25"                                                                                         \
    "1234"                                                                                         \
    "\x2a\x01x"

MR_TEST(fixed_features_take_every_form_of_the_wire)
{
    mr_status st;
    mr_example_feature f = {.name = "a", .name_size = 1, .dtype = MR_INT64};
    mr_example_plan *p = plan_of(&f, 1);
    errors e = {0};
    mr_array a;
    mr_bytes rows[] = {LIT(A_5),
                       LIT(A_6_UNPACKED),
                       LIT(A_7_8),
                       LIT(A_FLOAT),
                       LIT(A_NO_VALUES),
                       LIT(A_EMPTY_FEATURE),
                       LIT(""),
                       LIT(A_FLOAT A_5),
                       LIT(A_5 A_7_8),
                       LIT(UNKNOWN_FIELDS A_5),
                       LIT("\x0a\x0c\x0a"),
                       LIT("\x0b" A_5),
                       LIT(A_5 UNKNOWN_FIELDS),
                       {A_CUT "\x01", sizeof A_CUT - 1}};
    static const int64_t want[] = {5, 6, 0, 0, 0, 0, 0, 5, 0, 5, 0, 0, 5, 0};
    mr_ok(mr_example_parse(p, rows, 14, NULL, &a, note, &e, &st), &st);
    mr_eq_mem(a.data, want, sizeof want);
    static const size_t bad[] = {2, 3, 4, 5, 6, 8, 10, 11, 13};
    static const char *const why[] = {
        "values size: 2 but output shape: []", "expected int64, found float32",
        "values size: 0 but output shape: []", "required but could not be found",
        "required but could not be found",     "values size: 2",
        "could not parse example input",       "could not parse example input",
        "could not parse example input"};
    mr_eq_u64(e.n, 9);
    for (size_t i = 0; i < e.n; i++) {
        mr_eq_u64(e.row[i], bad[i]);
        mr_eq_i64(e.st[i].code, MR_INVALID_ARGUMENT);
        mr_has_str(e.st[i].message, why[i]);
    }
    mr_array_reset(&a);
    mr_code_is(mr_example_parse(p, rows, 14, NULL, &a, NULL, NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "Index: 2");
    mr_check(a.data == NULL);
    mr_example_plan_free(p);
}

MR_TEST(what_a_record_lacks_has_its_default_or_no_values)
{
    mr_status st;
    const int64_t three[] = {1, 2, 3};
    const mr_bytes text = LIT("none");
    mr_example_feature f[] = {{.name = "x",
                               .name_size = 1,
                               .dtype = MR_INT64,
                               .rank = 1,
                               .shape = {3},
                               .default_values = three,
                               .n_default_values = 3},
                              {.name = "a", .name_size = 1, .dtype = MR_INT64, .ragged = true},
                              {.name = "t",
                               .name_size = 1,
                               .dtype = MR_STRING,
                               .default_values = &text,
                               .n_default_values = 1}};
    mr_example_plan *p = plan_of(f, 3);
    mr_array c[3];
    mr_bytes rows[] = {LIT(A_7_8), LIT(""), LIT(A_6_UNPACKED), LIT(A_EMPTY_FEATURE)};
    static const int64_t counts[] = {2, 0, 1, 0};
    mr_ok(mr_example_parse(p, rows, 4, NULL, c, NULL, NULL, &st), &st);
    for (size_t i = 0; i < 4; i++) {
        const mr_row *row = mr_array_at(&c[1], 0);
        mr_eq_mem(mr_array_at(&c[0], i), three, sizeof three);
        mr_eq_i64(row[i].shape[0], counts[i]);
        mr_bytes *t = mr_array_at(&c[2], i);
        mr_eq_mem(t->data, "none", 4);
    }
    const mr_row *row = mr_array_at(&c[1], 0);
    mr_eq_i64(((const int64_t *)row[0].data)[1], 8);
    mr_eq_i64(((const int64_t *)row[2].data)[0], 6);
    for (int i = 0; i < 3; i++)
        mr_array_reset(&c[i]);
    mr_example_plan_free(p);
}

enum { KEYS = 40, ROWS = 50 };

/* Many features of all types in any order, some missing or doubled: what was written comes back. */
MR_TEST(random_examples_come_back)
{
    mr_status st;
    uint64_t state = mr_test_seed();
    static char names[KEYS][40];
    mr_example_feature f[KEYS];
    for (int k = 0; k < KEYS; k++) {
        size_t n = (size_t)snprintf(names[k], sizeof names[k], "%.*sk%d", k % 30,
                                    "a_rather_long_name_of_a_feature", k);
        f[k] = (mr_example_feature){.name = names[k],
                                    .name_size = n,
                                    .dtype = (mr_dtype[]){MR_INT64, MR_FLOAT32, MR_STRING}[k % 3],
                                    .ragged = k % 7 == 6,
                                    .rank = k % 5 == 4,
                                    .shape = {k % 5 == 4 ? 4 : 0}};
    }
    mr_example_plan *p = plan_of(f, KEYS);
    for (int round = 0; round < 20; round++) {
        static int64_t ints[ROWS][KEYS][6];
        static float floats[ROWS][KEYS][6];
        static mr_bytes strings[ROWS][KEYS][6];
        static size_t counts[ROWS][KEYS];
        uint8_t *buffer = NULL;
        size_t capacity = 0, size = 0, from[ROWS + 1] = {0};
        for (int r = 0; r < ROWS; r++) {
            mr_example_value v[KEYS];
            for (int k = 0; k < KEYS; k++) {
                size_t n = f[k].ragged ? mr_test_random(&state) % 6 : f[k].rank ? 4 : 1;
                counts[r][k] = n;
                for (size_t i = 0; i < n; i++) {
                    uint64_t x = mr_test_random(&state);
                    ints[r][k][i] = (int64_t)(x >> x % 64);
                    floats[r][k][i] = (float)(int64_t)x;
                    strings[r][k][i] = (mr_bytes){names[x % KEYS], x % 20};
                }
                v[k] = (mr_example_value){names[k], f[k].name_size, f[k].dtype,
                                          k % 3 == 0   ? (void *)ints[r][k]
                                          : k % 3 == 1 ? (void *)floats[r][k]
                                                       : (void *)strings[r][k],
                                          n};
            }
            mr_ok(mr_example_encode(v, KEYS, &buffer, &capacity, &size, &st), &st);
            from[r + 1] = size;
        }
        mr_bytes records[ROWS];
        mr_array c[KEYS];
        for (int r = 0; r < ROWS; r++)
            records[r] = (mr_bytes){(char *)buffer + from[r], from[r + 1] - from[r]};
        mr_ok(mr_example_parse(p, records, ROWS, NULL, c, NULL, NULL, &st), &st);
        for (size_t r = 0; r < ROWS; r++)
            for (int k = 0; k < KEYS; k++) {
                size_t n = counts[r][k];
                const mr_row *row = (const mr_row *)c[k].data + r;
                const void *got = f[k].ragged ? row->data : mr_array_at(&c[k], r);
                mr_test_context("row %zu feature %d", r, k);
                if (f[k].ragged)
                    mr_eq_i64(row->shape[0], n);
                if (k % 3 == 0 && n)
                    mr_eq_mem(got, ints[r][k], n * 8);
                if (k % 3 == 1 && n)
                    mr_eq_mem(got, floats[r][k], n * 4);
                for (size_t i = 0; k % 3 == 2 && i < n; i++) {
                    mr_bytes s = ((const mr_bytes *)got)[i];
                    mr_eq_u64(s.size, strings[r][k][i].size);
                    mr_eq_mem(s.data, strings[r][k][i].data, s.size);
                }
            }
        for (int k = 0; k < KEYS; k++)
            mr_array_reset(&c[k]);
        free(buffer);
    }
    mr_example_plan_free(p);
}

/* Every cut and every changed byte: an error or values, never a byte outside (the sanitizers look;
 * the record lies at the end of its memory). */
MR_TEST(damaged_examples_are_refused_or_read_within_their_bytes)
{
    mr_status st;
    int64_t one = 300, many[] = {1, -1, 1 << 20};
    float half[] = {0.5f, 2};
    mr_bytes text[] = {LIT("some text"), LIT("")};
    mr_example_value v[] = {{"one", 3, MR_INT64, &one, 1},
                            {"many", 4, MR_INT64, many, 3},
                            {"half", 4, MR_FLOAT32, half, 2},
                            {"text", 4, MR_STRING, text, 2}};
    mr_example_feature f[] = {
        {.name = "one", .name_size = 3, .dtype = MR_INT64},
        {.name = "many", .name_size = 4, .dtype = MR_INT64, .ragged = true},
        {.name = "half", .name_size = 4, .dtype = MR_FLOAT32, .rank = 1, .shape = {2}},
        {.name = "text", .name_size = 4, .dtype = MR_STRING, .ragged = true}};
    mr_example_plan *p = plan_of(f, 4);
    uint8_t *buffer = NULL;
    size_t capacity = 0, size = 0, refused = 0;
    mr_ok(mr_example_encode(v, 4, &buffer, &capacity, &size, &st), &st);
    uint64_t state = mr_test_seed();
    for (size_t i = 0; i < 3000; i++) {
        size_t n = i < size ? i : size;
        uint8_t *record = malloc(n ? n : 1);
        memcpy(record, buffer, n);
        if (i >= size)
            for (uint64_t k = 0; k < 1 + i % 3; k++)
                record[mr_test_random(&state) % n] = (uint8_t)mr_test_random(&state);
        mr_array c[4];
        mr_bytes r = {(char *)record, n};
        mr_code rc = mr_example_parse(p, &r, 1, NULL, c, NULL, NULL, &st);
        mr_check(rc == MR_OK || rc == MR_INVALID_ARGUMENT);
        refused += rc != MR_OK;
        for (int k = 0; k < 4 && rc == MR_OK; k++)
            mr_array_reset(&c[k]);
        free(record);
    }
    mr_check(refused > size / 2);
    free(buffer);
    mr_example_plan_free(p);
}

/* ---- what a parser expects of a record, and of the next one ---- */

enum { KINDS = 6, AFTER = 6, IMAGE = 20000, ENDS = 200 };

/* An Example of the n bytes of its features at `body`, in an allocation of its exact size. */
static mr_bytes whole(const uint8_t *body, size_t n)
{
    uint8_t head[8] = {0x0a};
    size_t used = 1;
    size_t left = n;
    for (; left >= 0x80; left >>= 7)
        head[used++] = (uint8_t)(left | 0x80);
    head[used++] = (uint8_t)left;
    char *record = malloc(used + n);
    memcpy(record, head, used);
    if (n)
        memcpy(record + used, body, n);
    return (mr_bytes){record, used + n};
}

/* One of all kinds of features, with values of all lengths. `damaged`: it ends early, or some bytes
 * near its ends, where there is more than the image, are others. */
static mr_bytes random_record(uint64_t *state, bool damaged, mr_status *st)
{
    static const size_t sizes[] = {0, 1, 60, 127, 128, 300, 300, 300, 16383, IMAGE};
    static const int64_t ints[] = {0, 1, 127, 128, 300, 1 << 20, INT64_MAX, -1, INT64_MIN};
    static const char image[IMAGE];
    mr_bytes text = {image, sizes[mr_test_random(state) % 10]}, other = {image, 300},
             name = LIT("n");
    int64_t label = ints[mr_test_random(state) % 9], three[3];
    float two[2] = {0.5f, (float)label};
    for (int i = 0; i < 3; i++)
        three[i] = ints[mr_test_random(state) % 9];
    const mr_example_value v[KINDS] = {{"image", 5, MR_STRING, &text, 1},
                                       {"image_of_a_cat", 14, MR_STRING, &other, 1},
                                       {"label", 5, MR_INT64, &label, 1},
                                       {"name_of_the_image_that_is_long", 30, MR_STRING, &name, 1},
                                       {"three", 5, MR_INT64, three, 3},
                                       {"two", 3, MR_FLOAT32, two, 2}};
    size_t n = KINDS - (mr_test_random(state) % 4 == 0), head = 1, capacity = 0, size = 0;
    uint8_t *buffer = NULL;
    mr_ok(mr_example_encode(v, n, &buffer, &capacity, &size, st), st);
    while (buffer[head++] >= 0x80)
        ;
    uint8_t *body = buffer + head;
    size -= head;
    if (damaged && mr_test_random(state) % 2) {
        size -= mr_test_random(state) % (size < ENDS ? size : ENDS);
    } else if (damaged) {
        for (uint64_t k = mr_test_random(state) % 2; k < 2; k++) {
            size_t at = mr_test_random(state) % (size < ENDS ? size : ENDS);
            body[mr_test_random(state) % 2 ? at : size - 1 - at] = (uint8_t)mr_test_random(state);
        }
    }
    mr_bytes record = whole(body, size);
    free(buffer);
    return record;
}

/* Each record is parsed among others, and again with a field after it that no Example has, with
 * which the parser takes nothing for granted. */
MR_TEST(what_is_taken_for_granted_of_a_record_holds)
{
    mr_status st;
    uint64_t state = mr_test_seed();
    const mr_example_feature f[KINDS] = {
        {.name = "image", .name_size = 5, .dtype = MR_STRING},
        {.name = "image_of_a_cat", .name_size = 14, .dtype = MR_STRING},
        {.name = "label", .name_size = 5, .dtype = MR_INT64},
        {.name = "name_of_the_image_that_is_long", .name_size = 30, .dtype = MR_STRING},
        {.name = "three", .name_size = 5, .dtype = MR_INT64, .rank = 1, .shape = {3}},
        {.name = "two",
         .name_size = 3,
         .dtype = MR_FLOAT32,
         .rank = 1,
         .shape = {2},
         .default_values = (const float[]){1, 2},
         .n_default_values = 2}};
    mr_example_plan *p = plan_of(f, KINDS);
    for (int round = 0; round < 2000; round++) {
        mr_bytes records[AFTER], marked[AFTER];
        mr_array fast[KINDS], slow[KINDS];
        errors of_fast = {0}, of_slow = {0};
        for (int r = 0; r < AFTER; r++) {
            records[r] = random_record(&state, mr_test_random(&state) % 2, &st);
            char *copy = malloc(records[r].size + 2);
            memcpy(copy, records[r].data, records[r].size);
            memcpy(copy + records[r].size, "\x10\x01", 2);
            marked[r] = (mr_bytes){copy, records[r].size + 2};
        }
        mr_ok(mr_example_parse(p, records, AFTER, NULL, fast, note, &of_fast, &st), &st);
        mr_ok(mr_example_parse(p, marked, AFTER, NULL, slow, note, &of_slow, &st), &st);
        mr_test_context("round %d", round);
        mr_eq_u64(of_fast.n, of_slow.n);
        for (size_t i = 0; i < of_fast.n; i++)
            mr_eq_u64(of_fast.row[i], of_slow.row[i]);
        for (size_t r = 0; r < AFTER; r++)
            for (int k = 0; k < KINDS; k++) {
                const mr_bytes *a = mr_array_at(&fast[k], r), *b = mr_array_at(&slow[k], r);
                mr_test_context("round %d record %zu feature %s", round, r, f[k].name);
                if (f[k].dtype != MR_STRING)
                    mr_eq_mem(a, b, mr_array_row_bytes(&fast[k]));
                else if (a->size == b->size && a->size)
                    mr_eq_mem(a->data, b->data, a->size);
                else
                    mr_eq_u64(a->size, b->size);
            }
        for (int k = 0; k < KINDS; k++) {
            mr_array_reset(&fast[k]);
            mr_array_reset(&slow[k]);
        }
        for (int r = 0; r < AFTER; r++) {
            free((void *)(uintptr_t)records[r].data);
            free((void *)(uintptr_t)marked[r].data);
        }
    }
    mr_example_plan_free(p);
}

MR_TEST(encoding_sorts_names_and_packs_lists)
{
    mr_status st;
    int64_t five = 5;
    uint8_t *buffer = NULL;
    size_t capacity = 0, size = 0;
    mr_bytes text = LIT("b");
    mr_example_value v[] = {{"t", 1, MR_STRING, &text, 1}, {"a", 1, MR_INT64, &five, 1}};
    mr_ok(mr_example_encode(v, 2, &buffer, &capacity, &size, &st), &st);
    mr_eq_u64(size, 26);
    mr_eq_mem(buffer,
              "\x0a\x18\x0a\x0a\x0a\x01"
              "a\x12\x05\x1a\x03\x0a\x01\x05"
              "\x0a\x0a\x0a\x01t\x12\x05\x0a\x03\x0a\x01"
              "b",
              26);
    v[0].name = "a";
    mr_code_is(mr_example_encode(v, 2, &buffer, &capacity, &size, &st), MR_INVALID_ARGUMENT, &st);
    v[0].dtype = MR_BOOL;
    mr_code_is(mr_example_encode(v, 2, &buffer, &capacity, &size, &st), MR_INVALID_ARGUMENT, &st);
    mr_eq_u64(size, 26);
    mr_free(buffer);
}

MR_TEST(bad_plans_are_refused)
{
    mr_status st;
    mr_example_plan *p = NULL;
    int64_t one = 1;
    mr_example_feature ok = {.name = "a", .name_size = 1, .dtype = MR_INT64}, f = ok;
    mr_code_is(mr_example_plan_new(&p, &f, 0, &st), MR_INVALID_ARGUMENT, &st);
    f.dtype = MR_BOOL;
    mr_code_is(mr_example_plan_new(&p, &f, 1, &st), MR_INVALID_ARGUMENT, &st);
    f = ok;
    f.rank = 1;
    f.shape[0] = -1;
    mr_code_is(mr_example_plan_new(&p, &f, 1, &st), MR_INVALID_ARGUMENT, &st);
    f.shape[0] = 2;
    f.default_values = &one;
    f.n_default_values = 1;
    mr_code_is(mr_example_plan_new(&p, &f, 1, &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(mr_example_plan_new(&p, (mr_example_feature[]){ok, ok}, 2, &st), MR_INVALID_ARGUMENT,
               &st);
}

MR_TEST(running_out_of_memory_is_reported)
{
    mr_bytes rows[] = {LIT(A_7_8), LIT(A_5)};
    mr_bytes text = LIT("x");
    mr_example_feature f[] = {{.name = "a", .name_size = 1, .dtype = MR_INT64, .ragged = true},
                              {.name = "b",
                               .name_size = 1,
                               .dtype = MR_STRING,
                               .default_values = &text,
                               .n_default_values = 1}};
    for (size_t nth = 0; fail_nth_next(nth); nth++) {
        mr_status st;
        mr_example_plan *p = NULL;
        mr_array c[2];
        mr_code rc = mr_example_plan_new(&p, f, 2, &st);
        if (rc == MR_OK)
            rc = mr_example_parse(p, rows, 2, NULL, c, NULL, NULL, &st);
        if (rc != MR_OK)
            mr_code_is(rc, MR_RESOURCE_EXHAUSTED, &st);
        for (int i = 0; i < 2 && rc == MR_OK; i++)
            mr_array_reset(&c[i]);
        mr_example_plan_free(p);
        fail_nth_end();
    }
}

static mr_code count(void *ctx, const mr_example_value *v, mr_status *st)
{
    (void)st;
    if (v->dtype == MR_INT64 && v->n == 2 && ((const int64_t *)v->values)[1] == 8)
        ++*(int *)ctx;
    return MR_OK;
}

MR_TEST(visiting_shows_features_as_they_stand)
{
    mr_status st;
    int seen = 0;
    mr_ok(mr_example_visit(A_7_8 A_7_8, 2 * (sizeof A_7_8 - 1), count, &seen, &st), &st);
    mr_eq_i64(seen, 2);
    mr_code_is(mr_example_visit("\x0a\x7f", 2, count, &seen, &st), MR_INVALID_ARGUMENT, &st);
}

MR_TEST(visiting_with_no_one_to_show_them_only_checks)
{
    mr_status st;
    mr_ok(mr_example_visit(A_7_8, sizeof A_7_8 - 1, NULL, NULL, &st), &st);
    mr_code_is(mr_example_visit("\x0a\x7f", 2, NULL, NULL, &st), MR_INVALID_ARGUMENT, &st);
}

/* What an Example of one feature `a` is seen as, whose message is given; "!": it is refused. */
typedef struct seen {
    char text[128];
    size_t n;
} seen;

static mr_code see(void *ctx, const mr_example_value *v, mr_status *st)
{
    seen *s = ctx;
    (void)st;
    for (size_t i = 0; i < v->n; i++)
        s->n +=
            (size_t)(v->dtype == MR_INT64 ? snprintf(s->text + s->n, sizeof s->text - s->n, "%lld ",
                                                     (long long)((const int64_t *)v->values)[i])
                                          : snprintf(s->text + s->n, sizeof s->text - s->n, "%.1f ",
                                                     (double)((const float *)v->values)[i]));
    return MR_OK;
}

static const char *seen_of(const char *feature, size_t n)
{
    static seen s;
    mr_status st;
    uint8_t *record = malloc(9 + n); /* its exact size, so that reading past its end is noticed */
    const uint8_t head[9] = {0x0a, (uint8_t)(7 + n), 0x0a, (uint8_t)(5 + n), 0x0a, 1, 'a',
                             0x12, (uint8_t)n};
    s = (seen){0};
    mr_check(record != NULL);
    memcpy(record, head, sizeof head);
    memcpy(record + sizeof head, feature, n);
    mr_code rc = mr_example_visit(record, sizeof head + n, see, &s, &st);
    free(record);
    mr_check(rc == MR_OK || rc == MR_INVALID_ARGUMENT);
    return rc == MR_OK ? s.text : "!";
}

#define SEEN(feature) seen_of(feature, sizeof(feature) - 1)
#define INT_5         "\x1a\x03\x0a\x01\x05"
#define INT_6         "\x1a\x02\x08\x06"
#define FLOAT_1       "\x12\x06\x0a\x04\0\0\x80\x3f"
#define FLOAT_2       "\x12\x05\x0d\0\0\0\x40"

MR_TEST(the_last_kind_of_a_feature_counts_and_its_lists_are_joined)
{
    mr_eq_str(SEEN(INT_5 FLOAT_1), "1.0 ");
    mr_eq_str(SEEN(FLOAT_1 INT_5), "5 ");
    mr_eq_str(SEEN(INT_5 INT_6), "5 6 ");
    mr_eq_str(SEEN(FLOAT_2 FLOAT_1 FLOAT_2), "2.0 1.0 2.0 ");
    mr_eq_str(SEEN(INT_5 FLOAT_1 INT_6), "6 ");
}

MR_TEST(floats_that_are_cut_short_are_refused)
{
    mr_eq_str(SEEN("\x12\x04\x0d\0\0\x80"), "!");
    mr_eq_str(SEEN("\x12\x05\x0a\x03\0\0\x80"), "!");
    mr_eq_str(SEEN("\x12\x07\x0a\x05\0\0\x80\x3f\0"), "!");
}

/* Keys of all lengths: one with another byte anywhere is another feature's. */
MR_TEST(every_byte_of_a_key_is_looked_at)
{
    enum { MOST = 40 };
    mr_status st;
    char key[MOST + 1];
    const mr_bytes text = LIT("x"), none = LIT("none");
    const int64_t number = 5, zero = 0;
    for (size_t n = 1; n <= MOST; n++)
        for (int is_text = 0; is_text < 2; is_text++) {
            const mr_example_feature f = {.name = key,
                                          .name_size = n,
                                          .dtype = is_text ? MR_STRING : MR_INT64,
                                          .default_values = is_text ? (const void *)&none : &zero,
                                          .n_default_values = 1};
            const mr_example_value v = {key, n, f.dtype, is_text ? (const void *)&text : &number,
                                        1};
            mr_bytes records[MOST + 1];
            errors e = {0};
            mr_array a;
            memset(key, 'k', sizeof key);
            for (size_t r = 0; r <= n; r++) { /* the first as it is; byte r - 1 of the others */
                uint8_t *buffer = NULL;
                size_t capacity = 0, size = 0;
                if (r > 0)
                    key[r - 1] ^= 1;
                mr_ok(mr_example_encode(&v, 1, &buffer, &capacity, &size, &st), &st);
                if (r > 0)
                    key[r - 1] ^= 1;
                records[r] = (mr_bytes){(char *)buffer, size};
            }
            mr_example_plan *p = plan_of(&f, 1);
            mr_ok(mr_example_parse(p, records, n + 1, NULL, &a, note, &e, &st), &st);
            mr_eq_u64(e.n, 0);
            for (size_t r = 0; r <= n; r++) {
                mr_test_context("key of %zu bytes, record %zu", n, r);
                const mr_bytes *s = mr_array_at(&a, r);
                if (is_text)
                    mr_eq_u64(s->size, r ? none.size : text.size);
                else
                    mr_eq_i64(((const int64_t *)a.data)[r], r ? zero : number);
                free((void *)(uintptr_t)records[r].data);
            }
            mr_array_reset(&a);
            mr_example_plan_free(p);
        }
}
