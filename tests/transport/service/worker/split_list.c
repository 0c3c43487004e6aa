/* SPDX-License-Identifier: Apache-2.0 */
/* The list of a stream's splits, fed by hand: what a source emits, what it asks for, and its
 * positions. */
#include "transport/service/worker/split_list.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/memory/alloc.h"
#include "shard/streams/stream_splits.h"
#include "tests/harness.h"

/* Who is asked: a thread that answers the n-th question with answers[n]. */
typedef struct answer {
    uint64_t index; /* as in mr__split_list_add; UINT64_MAX: the repetition has no more */
    uint64_t split;
} answer;

typedef struct asked {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    mr__split_list *list;
    const answer *answers;
    size_t n_answers, n;
    uint64_t index[8], repetition[8]; /* of the questions */
    bool stopped;
} asked;

#define NO_MORE UINT64_MAX

static void ask(void *ctx, uint64_t index, uint64_t repetition)
{
    asked *a = ctx;
    pthread_mutex_lock(&a->lock);
    if (a->n < 8) {
        a->index[a->n] = index;
        a->repetition[a->n++] = repetition;
    }
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

static void *give_answers(void *ctx)
{
    asked *a = ctx;
    for (size_t i = 0; i < a->n_answers; i++) {
        pthread_mutex_lock(&a->lock);
        while (a->n <= i && !a->stopped)
            pthread_cond_wait(&a->changed, &a->lock);
        uint64_t repetition = a->repetition[i];
        bool stopped = a->stopped;
        pthread_mutex_unlock(&a->lock);
        if (stopped)
            break;
        if (a->answers[i].index == NO_MORE)
            mr__split_list_end(a->list, repetition);
        else
            mr__split_list_add(a->list, a->answers[i].index, a->answers[i].split);
    }
    return NULL;
}

/* The graph, fed from a list of v[0..n) of `total` a repetition. */
static mr_dataset *fed(const char *text, const uint64_t *v, size_t n, uint64_t total, asked *a,
                       mr__split_list **list)
{
    mr_status st;
    mr_dataset *whole = NULL, *out = NULL;
    int64_t splits = 0;
    whole = mr_test_graph(text);
    mr_ok(mr_count_splits(whole, &splits, &st), &st);
    mr_eq_u64((uint64_t)splits, total);
    mr_ok(mr__split_list_new(list, v, n, total, ask, a, &st), &st);
    mr_ok(mr__split_list_feed(*list, whole, &out, &st), &st);
    mr_dataset_unref(whole);
    return out;
}

static mr_iterator *opened(mr_dataset *ds)
{
    mr_status st;
    mr_iterator *it = NULL;
    mr_iterator_opts opts = {.has_threads = true, .positions = true};
    mr_ok(mr_iterator_open(&it, ds, &opts, &st), &st);
    return it;
}

/* Adds the numbers that it emits, at most `limit`, to text; returns what ended it. */
static mr_code emitted(mr_iterator *it, size_t limit, char *text, size_t size)
{
    mr_status st;
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc = MR_OK;
    for (; limit > 0 && (rc = mr_iterator_next(it, 1, &b, &st)) == MR_OK; limit--) {
        size_t at = strlen(text);
        snprintf(text + at, size - at, "%lld ",
                 (long long)*(const int64_t *)mr_array_at(&b.columns[0], 0));
    }
    mr_block_reset(&b);
    return rc;
}

typedef struct one_case {
    const char *graph;
    uint64_t total;
    uint64_t v[8];
    size_t n;
    uint64_t ended; /* repetitions that have no more */
    const char *expected;
} one_case;

static const one_case cases[] = {
    {"range(4)", 4, {1, 3}, 2, 1, "1 3 "},
    {"range(4)", 4, {0}, 0, 1, ""},
    /* The numbers of the second repetition follow those of the first. */
    {"range(4).repeat(2)", 4, {1, 3, 4, 6}, 4, 2, "1 3 0 2 "},
    {"range(4).repeat(2)", 4, {5, 7}, 2, 2, "1 3 "},
    /* Numbers 0 to 3 are of the first source, 4 and 5 of the second. */
    {"range(4).concatenate(range(10, 12))", 6, {0, 2, 5}, 3, 1, "0 2 11 "},
    {"range(4).concatenate(range(10, 12))", 6, {4}, 1, 1, "10 "},
    {"range(4).concatenate(range(10, 12)).repeat(2)", 6, {3, 4, 7, 11}, 4, 2, "3 10 1 11 "},
    /* All of take's result is one split. */
    {"range(4).take(2)", 1, {0}, 1, 1, "0 1 "},
    {"range(4).take(2).concatenate(range(10, 12))", 3, {0, 1}, 2, 1, "0 1 10 "},
    /* Two numbers a split. */
    {"range(512)", 256, {3, 255}, 2, 1, "6 7 510 511 "},
    {"range(512).repeat(2)", 256, {3, 256}, 2, 2, "6 7 0 1 "},
    /* A source without splits ends, and no split is requested. */
    {"range(0)", 0, {0}, 0, 0, ""},
    {"range(0).concatenate(range(4))", 4, {1}, 1, 1, "1 "},
};

static mr_dataset *fed_case(const one_case *c, mr__split_list **list)
{
    mr_dataset *ds = fed(c->graph, c->v, c->n, c->total, NULL, list);
    for (uint64_t r = 0; r < c->ended; r++)
        mr__split_list_end(*list, r);
    return ds;
}

MR_TEST(a_source_emits_its_splits_of_each_repetition)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_test_context("case %zu, %s", i, cases[i].graph);
        mr__split_list *list;
        char text[128] = "";
        mr_dataset *ds = fed_case(&cases[i], &list);
        mr_iterator *it = opened(ds);
        mr_code_is(emitted(it, SIZE_MAX, text, sizeof text), MR_END, NULL);
        mr_eq_str(text, cases[i].expected);
        mr_iterator_close(it);
        mr_dataset_unref(ds);
        mr__split_list_free(list);
    }
}

static void *position_after(const one_case *c, size_t elements, char *text, size_t room,
                            size_t *size)
{
    mr_status st;
    void *bytes = NULL;
    mr__split_list *list;
    mr_dataset *ds = fed_case(c, &list);
    mr_iterator *it = opened(ds);
    (void)!emitted(it, elements, text, room);
    mr_ok(mr_iterator_save(it, &bytes, size, &st), &st);
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr__split_list_free(list);
    return bytes;
}

MR_TEST(a_restored_stream_goes_on_with_its_list)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t k = 0; k < 5 * 3; k++) {
            size_t saved = k / 3, before = k % 3; /* elements that it emitted before */
            mr_test_context("case %zu, %s, after %zu, in place of %zu", i, cases[i].graph, saved,
                            before);
            mr_status st;
            mr__split_list *list;
            size_t size;
            char text[128] = "", lost[128] = "";
            void *bytes = position_after(&cases[i], saved, text, sizeof text, &size);
            mr_dataset *ds = fed_case(&cases[i], &list);
            mr_iterator *it = opened(ds);
            (void)!emitted(it, before, lost, sizeof lost);
            mr_ok(mr_iterator_restore(it, bytes, size, &st), &st);
            mr_code_is(emitted(it, SIZE_MAX, text, sizeof text), MR_END, NULL);
            mr_eq_str(text, cases[i].expected);
            mr_free(bytes);
            mr_iterator_close(it);
            mr_dataset_unref(ds);
            mr__split_list_free(list);
        }
}

/* Number `field` of the state of the op, after its name, flags, epoch, count, and the two numbers
 * that all iterators of its node share. */
static unsigned char *field_of(unsigned char *bytes, size_t size, size_t field)
{
    static const char name[] = "\6splits";
    for (size_t at = size - sizeof name; at > 8; at--)
        if (memcmp(bytes + at, name, sizeof name - 1) == 0)
            return bytes + at + sizeof name - 1 + 5 + field;
    mr_fail_test("no state of %s in the position", name + 1);
}

MR_TEST(a_position_that_cannot_be_is_refused)
{
    static const struct {
        size_t field;
        unsigned char value;
    } wrong[] = {{0, 2} /* begun */, {3, 2} /* open */, {4, 1} /* the split */};
    static const one_case c = {"range(4).take(2)", 1, {0}, 1, 1, NULL};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        mr_test_context("number %zu is %d", wrong[i].field, wrong[i].value);
        mr_status st;
        mr__split_list *list;
        size_t size;
        char text[128] = "";
        unsigned char *bytes = position_after(&c, 1, text, sizeof text, &size);
        *field_of(bytes, size, wrong[i].field) = wrong[i].value;
        uint32_t sum = (uint32_t)crc32_z(0, bytes + 8, size - 8);
        for (int k = 0; k < 4; k++)
            bytes[4 + k] = (unsigned char)(sum >> 8 * k);
        mr_dataset *ds = fed_case(&c, &list);
        mr_iterator *it = opened(ds);
        mr_code_is(mr_iterator_restore(it, bytes, size, &st), MR_INVALID_ARGUMENT, &st);
        mr_free(bytes);
        mr_iterator_close(it);
        mr_dataset_unref(ds);
        mr__split_list_free(list);
    }
}

/* Runs a graph whose list begins empty; the questions are then in a->index and a->repetition. */
static void run_asking(const char *graph, uint64_t total, asked *a, char *text, size_t size)
{
    pthread_t thread;
    mr_dataset *ds = fed(graph, NULL, 0, total, a, &a->list);
    mr__split_list_add(a->list, 0, 1); /* not requested */
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    mr_check(pthread_create(&thread, NULL, give_answers, a) == 0);
    mr_iterator *it = opened(ds);
    mr_code rc = emitted(it, SIZE_MAX, text, size);
    mr_iterator_close(it);
    pthread_mutex_lock(&a->lock);
    a->stopped = true;
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
    pthread_join(thread, NULL);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    mr_code_is(rc, MR_END, NULL);
    mr_dataset_unref(ds);
    mr__split_list_free(a->list);
}

MR_TEST(splits_are_asked_for_where_the_list_ends)
{
    /* The second answer is to another question, so the question is asked again. */
    static const answer answers[] = {{0, 2}, {7, 0}, {1, 3}, {NO_MORE, 0}, {2, 4}, {NO_MORE, 0}};
    static const uint64_t index[] = {0, 1, 1, 2, 2, 3}, repetition[] = {0, 0, 0, 0, 1, 1};
    asked a = {.answers = answers, .n_answers = sizeof answers / sizeof *answers};
    char text[128] = "";
    run_asking("range(4).repeat(2)", 4, &a, text, sizeof text);
    mr_eq_str(text, "2 3 0 ");
    mr_eq_u64(a.n, a.n_answers);
    for (size_t i = 0; i < a.n_answers; i++) {
        mr_eq_u64(a.index[i], index[i]);
        mr_eq_u64(a.repetition[i], repetition[i]);
    }
}

MR_TEST(a_split_of_a_later_repetition_ends_this_one)
{
    static const answer answers[] = {{0, 5}, {NO_MORE, 0}};
    asked a = {.answers = answers, .n_answers = 2};
    char text[128] = "";
    run_asking("range(4).repeat(2)", 4, &a, text, sizeof text);
    mr_eq_str(text, "1 ");
    mr_eq_u64(a.n, 2);
    mr_eq_u64(a.repetition[0], 0);
    mr_eq_u64(a.repetition[1], 1);
}

MR_TEST(a_repetition_that_ended_stays_so)
{
    mr__split_list *list;
    char text[128] = "";
    mr_dataset *ds = fed("range(4).repeat(3)", NULL, 0, 4, NULL, &list);
    mr__split_list_end(list, 2);
    mr__split_list_end(list, 0);
    mr_iterator *it = opened(ds);
    mr_code_is(emitted(it, SIZE_MAX, text, sizeof text), MR_END, NULL);
    mr_eq_str(text, "");
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr__split_list_free(list);
}

MR_TEST(a_stopped_list_cancels_every_wait)
{
    static const uint64_t v[] = {0, 1};
    mr__split_list *list;
    char text[128] = "";
    mr_dataset *ds = fed("range(4)", v, 2, 4, NULL, &list);
    mr_iterator *it = opened(ds);
    mr_code_is(emitted(it, 1, text, sizeof text), MR_OK, NULL);
    mr__split_list_stop(list);
    mr_code_is(emitted(it, 9, text, sizeof text), MR_CANCELLED, NULL);
    mr_eq_str(text, "0 ");
    mr_iterator_close(it);
    mr_dataset_unref(ds);
    mr__split_list_free(list);
}
