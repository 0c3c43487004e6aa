/* SPDX-License-Identifier: Apache-2.0 */
/* Features of parse_example that one list of a record does not make by itself. */
#include <stdio.h>
#include <string.h>

#include "pipeline/formats/tfrecord/example.h"
#include "pipeline/memory/alloc.h"
#include "tests/harness.h"
#include "tests/pipeline/functions/evaluate.h"

MR_ONE_THREAD;

/* An Example of the features i, v and s as a string literal of the text form. */
static const char *literal(const int64_t *i, size_t n_i, const float *v, size_t n_v, const char *s)
{
    static char text[4][2048];
    static int turn;
    char *out = text[turn++ % 4], *at = out;
    mr_status st;
    uint8_t *record = NULL;
    size_t room = 0, n = 0;
    const mr_bytes strings[2] = {{s, s ? strlen(s) : 0}, {"z", 1}};
    const mr_example_value all[] = {{"i", 1, MR_INT64, i, n_i},
                                    {"s", 1, MR_STRING, strings, s ? 2 : 0},
                                    {"v", 1, MR_FLOAT32, v, n_v}};
    mr_ok(mr_example_encode(all, 3, &record, &room, &n, &st), &st);
    *at++ = '"';
    for (size_t k = 0; k < n; k++)
        at += sprintf(at, "\\x%02x", record[k]);
    strcpy(at, "\"");
    mr_free(record);
    return out;
}

static const char *parse(const char *x, const char *features)
{
    char f[8192];
    snprintf(f, sizeof f, "x => parse_example(%s, %s)", x, features);
    return evaluate(1, f);
}

static const int64_t places[] = {4, 0};
static const float numbers[] = {1.5F, 2.5F};

MR_TEST(sparse_features_become_tensors)
{
    const char *x = literal(places, 2, numbers, 2, "a");
    mr_eq_str(parse(x, "f=sparse(float32, index=\"i\", value=\"v\", size=5)"),
              "{f: [2.5, 0.0, 0.0, 0.0, 1.5]}");
    mr_eq_str(parse(x, "f=sparse(bytes, \"i\", \"s\", 5)"),
              "{f: [\"z\", \"\", \"\", \"\", \"a\"]}");
    mr_eq_str(parse(x, "{\"f\": sparse(float32, index=\"i\", value=\"v\", size=5), \"i\": int64[], "
                       "\"g\": sparse(bytes, index=\"i\", value=\"s\", size=6), \"b\": int64[]}"),
              "{b: [], f: [2.5, 0.0, 0.0, 0.0, 1.5], g: [\"z\", \"\", \"\", \"\", \"a\", \"\"], "
              "i: [4, 0]}");
    mr_eq_str(parse("\"\"", "f=sparse(int64, index=\"i\", value=\"v\", size=2)"), "{f: [0, 0]}");
    char two[5000];
    snprintf(two, sizeof two, "[%s, \"\"]", x);
    mr_eq_str(parse(two, "f=sparse(float32, index=\"i\", value=\"v\", size=5)"),
              "{f: [[2.5, 0.0, 0.0, 0.0, 1.5], [0.0, 0.0, 0.0, 0.0, 0.0]]}");
}

MR_TEST(bad_sparse_features_fail_their_element)
{
    static const int64_t twice[] = {1, 1}, below[] = {-1, 0};
    const char *of = "f=sparse(float32, index=\"i\", value=\"v\", size=4)";
    mr_has_str(parse(literal(places, 2, numbers, 2, "a"), of),
               "!Name: <unknown>, Feature: f, Index: 0. an index is out of range");
    mr_has_str(parse(literal(below, 2, numbers, 2, "a"), of), "an index is out of range");
    mr_has_str(parse(literal(twice, 2, numbers, 2, "a"), of), "an index appears twice");
    mr_has_str(parse(literal(places, 1, numbers, 2, "a"), of), "differ in number");
    mr_has_str(parse(literal(places, 2, numbers, 2, "a"),
                     "f=sparse(int64, index=\"i\", value=\"v\", size=4)"),
               "data types differ: expected int64, found float32");
    char two[5000];
    snprintf(two, sizeof two, "[\"\", %s]", literal(places, 1, numbers, 2, "a"));
    mr_has_str(parse(two, of), "Index: 1. its indices and values differ in number");
}

MR_TEST(wrong_sparse_features_are_refused)
{
    mr_has_str(parse("\"\"", "f=5"), "f: a feature must be int64");
    mr_has_str(parse("\"\"", "f=int32"), "an Example holds int64, float32 and bytes; read f");
    mr_has_str(parse("\"\"", "f=int64[-1]"), "f: a dimension is an integer of at least 0");
    mr_has_str(parse("\"\"", "f=int64[100000, 100000]"), "at most 2147483647 values");
    mr_has_str(parse("\"\"", "f=feature(int64[], default=1)"),
               "f: a feature of any length takes no");
    mr_has_str(parse("\"\"", "f=feature(int64, [3], 1)"), "of f has 1 values, but its shape 3");
    mr_has_str(parse("\"\"", "f=sparse(float32)"), "or sparse(dtype, index=");
    mr_has_str(parse("\"\"", "f=sparse(float32, index=\"i\", value=\"v\", size=0)"),
               "must be int64");
    mr_has_str(parse("\"\"", "f=sparse(float32[2], index=\"i\", value=\"v\", size=3)"),
               "must be int64");
    mr_has_str(parse("\"\"", "f=sparse(float32, index=\"\", value=\"v\", size=3)"),
               "must be int64");
    mr_has_str(parse("\"\"", "{\"f\": sparse(float32, index=\"i\", value=\"v\", size=3), "
                             "\"i\": int64}"),
               "feature i is also part of a sparse feature, so it must be int64[]");
    mr_has_str(parse("\"\"", "f=sparse(float32, index=\"v\", value=\"v\", size=3)"),
               "feature v is also part of a sparse feature");
}

/* ---- parse_sequence_example ---- */

typedef struct message {
    unsigned char v[2000];
    size_t n;
} message;

/* A field of bytes, under 128 of them. */
static void put(message *m, int field, const void *v, size_t n)
{
    m->v[m->n++] = (unsigned char)(field << 3 | 2);
    m->v[m->n++] = (unsigned char)n;
    memcpy(m->v + m->n, v, n);
    m->n += n;
}

/* A Feature of one list: of small integers, or of strings of one letter. */
static message feature(int kind, const char *letters)
{
    message list = {.n = 0}, out = {.n = 0};
    for (const char *c = letters; *c; c++)
        if (kind == 1)
            put(&list, 1, c, 1);
        else {
            list.v[list.n++] = 0x08;
            list.v[list.n++] = (unsigned char)(*c - '0');
        }
    put(&out, kind, list.v, list.n);
    return out;
}

static void put_entry(message *to, const char *key, const message *value)
{
    message entry = {.n = 0};
    put(&entry, 1, key, strlen(key));
    put(&entry, 2, value->v, value->n);
    put(to, 1, entry.v, entry.n);
}

/* A SequenceExample as a literal: id in the context, and a sequence of steps, each a list. */
static const char *sequences(const char *key, int kind, const char *const *steps, size_t n)
{
    static char text[4][4096];
    static int turn;
    char *out = text[turn++ % 4], *at = out;
    message context = {.n = 0}, list = {.n = 0}, lists = {.n = 0}, all = {.n = 0};
    message id = feature(3, "7");
    put_entry(&context, "id", &id);
    for (size_t i = 0; i < n; i++) {
        message step = feature(kind, steps[i]);
        put(&list, 1, step.v, step.n);
    }
    put_entry(&lists, key, &list);
    put(&all, 1, context.v, context.n);
    put(&all, 2, lists.v, lists.n);
    *at++ = '"';
    for (size_t k = 0; k < all.n; k++)
        at += sprintf(at, "\\x%02x", all.v[k]);
    strcpy(at, "\"");
    return out;
}

static const char *read(const char *x, const char *what)
{
    char f[16000];
    snprintf(f, sizeof f, "x => parse_sequence_example(%s, %s)", x, what);
    return evaluate(1, f);
}

static const char *const single[] = {"1", "2", "3"}, *const mixed[] = {"ab", "", "c"},
                         *const pairs[] = {"12", "34"};

MR_TEST(sequences_become_tensors)
{
    const char *x = sequences("s", 3, single, 3);
    mr_eq_str(read(x, "context={\"id\": int64}, sequences={\"s\": int64}"),
              "({id: 7}, {s: [1, 2, 3]})");
    mr_eq_str(read(x, "context={\"id\": int64}"), "{id: 7}");
    mr_eq_str(read(x, "sequences={\"s\": int64}"), "{s: [1, 2, 3]}");
    mr_eq_str(read(x, "sequences={\"s\": int64[1], \"t\": bytes[]}"),
              "{s: [[1], [2], [3]], t: []}");
    mr_eq_str(read(sequences("w", 1, mixed, 3), "sequences={\"w\": bytes[]}"),
              "{w: [[\"a\", \"b\"], [], [\"c\"]]}");
    mr_eq_str(read(sequences("p", 3, pairs, 2), "sequences={\"p\": int64[2]}"),
              "{p: [[1, 2], [3, 4]]}");
    mr_eq_str(read(sequences("p", 3, pairs, 0), "sequences={\"p\": int64[2]}"), "{p: []}");
    char two[9000];
    snprintf(two, sizeof two, "[%s, %s]", sequences("s", 3, single, 3),
             sequences("s", 3, single, 1));
    mr_eq_str(read(two, "context={\"id\": int64}, sequences={\"s\": int64}"),
              "({id: [7, 7]}, {s: [[1, 2, 3], [1]]})");
    snprintf(two, sizeof two, "[%s, %s]", sequences("p", 3, pairs, 1), sequences("p", 3, pairs, 2));
    mr_eq_str(read(two, "sequences={\"p\": int64[2]}"), "{p: [[[1, 2]], [[1, 2], [3, 4]]]}");
}

MR_TEST(bad_sequences_fail_their_element)
{
    mr_has_str(read(sequences("s", 3, single, 3), "sequences={\"t\": int64}"),
               "!parse_sequence_example: sequence t is required but could not be found");
    mr_has_str(read(sequences("s", 3, single, 3), "sequences={\"s\": float32}"),
               "sequence s, step 0: it has values of another type");
    mr_has_str(read(sequences("w", 1, mixed, 3), "sequences={\"w\": bytes[2]}"),
               "sequence w, step 1: it has 0 values, not 2");
    mr_has_str(read("\"\\x12\\x09\"", "sequences={\"s\": int64}"),
               "2 bytes that are not a tf.train.SequenceExample");
    mr_has_str(read("\"\"", "context={\"id\": int64}"), "required but could not be found");
    mr_has_str(read("\"\"", "sequences={\"s\": int64[]}"), "{s: []}");
}

/* Whatever the bytes are, they are read or refused, and nothing outside them is looked at. */
MR_TEST(damaged_records_are_read_or_refused)
{
    const char *whole = sequences("w", 1, mixed, 3);
    size_t n = (strlen(whole) - 2) / 4;
    for (size_t at = 0; at < n; at++)
        for (int way = 0; way < 3; way++) {
            char x[4096];
            snprintf(x, sizeof x, "%s", whole);
            if (way == 0) /* cut there */
                strcpy(x + 1 + 4 * at, "\"");
            else
                memcpy(x + 3 + 4 * at, way == 1 ? "ff" : "01", 2);
            const char *shown = read(x, "sequences={\"w\": bytes[]}");
            mr_check(*shown == '!' || *shown == '{');
        }
}

MR_TEST(wrong_sequences_are_refused)
{
    char f[200] = "x => parse_sequence_example(\"\")";
    mr_has_str(evaluate(1, f), "no feature is requested");
    mr_has_str(read("\"\"", "sequences={\"s\": int32}"), "holds int64, float32 and bytes");
    mr_has_str(read("[\"\"]", "sequences={\"s\": int64[]}"), "read one record at a time");
    mr_has_str(read("\"\"", "sequences={\"s\": feature(int64, default=1)}"), "takes no default");
    mr_has_str(read("\"\"", "context={\"s\": 5}"), "must be int64");
}
