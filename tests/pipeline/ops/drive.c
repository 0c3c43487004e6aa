/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/pipeline/ops/drive.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/graph/op.h"
#include "pipeline/memory/buffer.h"
#include "pipeline/ops/sequence.h"
#include "tests/events.h"
#include "tests/fault.h"
#include "tests/harness.h"

typedef enum order { IN_ORDER, ANY_ORDER } order;

enum { POSITIONS = 24 }; /* of each way that are restored, below the long tier */

/* What is being driven. */
struct drive {
    mr_dataset *ds;
    const char *what;
    mr_events expected;
    order how;
    mr_executor *pools[3]; /* of threads[i], shared by every second way */
    uint64_t random;
};

/* ---- ways of running ---- */

static const int64_t block_rows[] = {1, 3, 1024};
static const int64_t threads[] = {0, 1, 4};
enum { N_WAYS = 9 };

static mr_iterator *open_way(const struct drive *d, int way, bool positions)
{
    mr_iterator_opts opts = {.block_rows = block_rows[way % 3],
                             .executor = way % 2 ? d->pools[way / 3] : NULL,
                             .threads = threads[way / 3],
                             .has_threads = true,
                             .positions = positions,
                             .identities = way % 4 == 1,
                             .seed = 17,
                             .has_seed = true};
    mr_iterator *it = NULL;
    mr_status st;
    mr_ok(mr_iterator_open(&it, d->ds, &opts, &st), &st);
    return it;
}

static void compare(const struct drive *d, mr_events *e)
{
    bool same = e->n == d->expected.n;
    if (d->how == ANY_ORDER)
        mr_events_sort(e);
    size_t at = 0;
    while (at < e->n && at < d->expected.n && mr_event_is(e->v[at].text, d->expected.v[at].text))
        at++;
    if (same && at == e->n)
        return;
    char *got = mr_events_join(e), *wanted = mr_events_join(&d->expected);
    mr_fail_test("event %zu: expected %s of\n  %s\ngot %s of\n  %s", at,
                 at < d->expected.n ? d->expected.v[at].text : "the end", wanted,
                 at < e->n ? e->v[at].text : "the end", got);
}

static void run_way(const struct drive *d, int way)
{
    mr_events e = {0};
    mr_iterator *it = open_way(d, way, false);
    mr_block b = MR_BLOCK_EMPTY;
    mr_events_run(&e, it, (size_t)block_rows[way % 3], SIZE_MAX);
    mr_code_is(mr_events_pull(&e, it, 1, &b), MR_END, NULL); /* the end stays */
    mr_block_reset(&b);
    mr_iterator_close(it);
    compare(d, &e);
    mr_events_reset(&e, 0);
    for (size_t k = 0; k < d->expected.n; k += 3) { /* closed early, cancelled or not */
        it = open_way(d, way, false);
        mr_events_run(&e, it, 1024, k);
        if (k % 2)
            mr_iterator_cancel(it);
        mr_iterator_close(it);
        mr_events_reset(&e, 0);
    }
}

/* ---- saving and restoring ---- */

struct place {
    void *bytes;
    size_t size, events; /* delivered before it */
};

struct places {
    struct place *v;
    size_t n;
};

static struct place *new_place(struct places *p, size_t events)
{
    p->v = realloc(p->v, (p->n + 1) * sizeof *p->v);
    mr_check(p->v);
    p->v[p->n] = (struct place){.events = events};
    return &p->v[p->n++];
}

/* Runs to the end; saves after every pull and, at_rows, after every row of every block. An error of
 * no element comes again after a position that was saved after it. */
static mr_iterator *save_everywhere(const struct drive *d, int way, size_t want, bool at_rows,
                                    struct places *places, mr_events *e)
{
    mr_iterator *it = open_way(d, way, true);
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc = MR_OK;
    mr_status st;
    size_t most = SIZE_MAX;
    while (rc != MR_END) {
        struct place *p = new_place(places, e->n < most ? e->n : most);
        mr_ok(mr_iterator_save(it, &p->bytes, &p->size, &st), &st);
        size_t before = e->n;
        rc = mr_events_pull(e, it, want, &b);
        if (rc < 0 && mr_status_is_of_no_element(&e->error))
            most = before;
        for (size_t r = 1; at_rows && rc == MR_OK && r <= b.rows; r++) {
            p = new_place(places, before + r);
            mr_ok(mr_iterator_save_at(it, &b, r, &p->bytes, &p->size, &st), &st);
        }
    }
    struct place *p = new_place(places, e->n < most ? e->n : most); /* after the end */
    mr_ok(mr_iterator_save(it, &p->bytes, &p->size, &st), &st);
    mr_block_reset(&b);
    return it;
}

static void restore_and_compare(const struct drive *d, mr_iterator *it, size_t want,
                                const struct place *p, const mr_events *before)
{
    mr_events e = {0};
    mr_status st;
    mr_ok(mr_iterator_restore(it, p->bytes, p->size, &st), &st);
    mr_events_copy(&e, before, p->events);
    mr_events_run(&e, it, want, SIZE_MAX);
    compare(d, &e);
    mr_events_reset(&e, 0);
}

static void check_positions(struct drive *d, int way, size_t want, bool at_rows)
{
    struct places places = {0};
    mr_events e = {0}, copy = {0};
    mr_iterator *it = save_everywhere(d, way, want, at_rows, &places, &e);
    mr_events_copy(&copy, &e, e.n);
    compare(d, &copy); /* saving changes nothing */
    mr_events_reset(&copy, 0);
    size_t most = mr_test_long() ? SIZE_MAX : POSITIONS;
    for (size_t i = 0; i < places.n; i++) {
        const struct place *p = &places.v[i];
        bool drawn = places.n <= most || mr_test_random(&d->random) % places.n < most;
        if (drawn && mr_test_takes(i + (size_t)way, 4)) {
            int other = (int)((size_t)way + 1 + i % (N_WAYS - 1)) % N_WAYS;
            mr_test_context("%s: way %d, want %zu%s, restored after event %zu, way %d", d->what,
                            way, want, at_rows ? " at rows" : "", p->events, other);
            mr_iterator *fresh = open_way(d, other, true);
            if (i % 3 == 0) { /* it may be used already */
                mr_events_run(&copy, fresh, 2, 3);
                mr_events_reset(&copy, 0);
            }
            restore_and_compare(d, fresh, (size_t)block_rows[other % 3], p, &e);
            mr_iterator_close(fresh);
            /* The one that saved goes back. */
            if (i % 4 == 1 && d->how == IN_ORDER)
                restore_and_compare(d, it, 2, p, &e);
        }
        mr_free(p->bytes);
    }
    mr_iterator_close(it);
    free(places.v);
    mr_events_reset(&e, 0);
}

/* ---- by number ---- */

/* true: it has an op that passes over failed elements without counting them, but counts them when
 * elements are looked up. */
static bool counts_otherwise(const mr_dataset *ds)
{
    size_t n = mr_dataset_n_inputs(ds);
    bool otherwise = n == 1 && !(mr_dataset_op(ds)->props & MR_OP_KEEPS_COUNT);
    for (size_t i = 0; i < n; i++)
        otherwise = otherwise || counts_otherwise(mr_dataset_input(ds, i));
    return otherwise;
}

/* Elements that are looked up, in any order and several at once, are those of a pass. */
static void check_lookups(struct drive *d, bool errors)
{
    enum { ROUNDS = 12, MOST = 5 };
    const mr_iterator_opts opts = {.identities = true, .seed = 17, .has_seed = true};
    mr_random_access *ra = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    int64_t n;
    mr_ok(mr_random_access_open(&ra, d->ds, &opts, &st), &st);
    if (mr_random_access_count(ra, &n, &st) != MR_OK) { /* there is no index */
        mr_random_access_close(ra);
        return;
    }
    if (!errors)
        mr_eq_i64(n, (int64_t)d->expected.n);
    for (int i = 0; i < ROUNDS && n == (int64_t)d->expected.n && n > 0; i++) {
        int64_t numbers[MOST];
        for (int k = 0; k < MOST; k++)
            numbers[k] = (int64_t)(mr_test_random(&d->random) % (uint64_t)n) - (k == 1 ? n : 0);
        for (int done = 0; done < MOST;) {
            mr_events e = {0};
            mr_events_at(&e, ra, numbers + done, (size_t)(MOST - done), &b);
            for (size_t k = 0; k < e.n; k++, done++) {
                int64_t number = numbers[done] + (numbers[done] < 0 ? n : 0);
                const char *wanted = d->expected.v[number].text;
                if (!mr_event_is(e.v[k].text, wanted))
                    mr_fail_test("element %" PRId64 ": expected %s, got %s", number, wanted,
                                 e.v[k].text);
            }
            mr_events_reset(&e, 0);
        }
    }
    for (int64_t beyond = -n - 1; beyond <= n; beyond += 2 * n + 1)
        mr_code_is(mr_random_access_at(ra, &beyond, 1, &b, &st), MR_OUT_OF_RANGE, &st);
    mr_block_reset(&b);
    mr_random_access_close(ra);
}

static void check_skips(struct drive *d)
{
    enum { ROUNDS = 4 };
    mr_dataset *whole = d->ds;
    for (int i = 0; i < ROUNDS; i++) {
        size_t n = (size_t)(mr_test_random(&d->random) % (d->expected.n + 2));
        int way = (int)(mr_test_random(&d->random) % N_WAYS);
        mr_events e = {0};
        if (threads[way / 3] == 0 && mr_test_for_races())
            continue;
        d->ds = mr_skip(mr_dataset_ref(whole), (int64_t)n);
        mr_test_context("%s: skip(%zu), way %d", d->what, n, way);
        mr_iterator *it = open_way(d, way, false);
        mr_events_copy(&e, &d->expected, n);
        mr_events_run(&e, it, (size_t)block_rows[way % 3], SIZE_MAX);
        mr_iterator_close(it);
        compare(d, &e);
        mr_events_reset(&e, 0);
        mr_dataset_unref(d->ds);
    }
    d->ds = whole;
}

static bool no_lookups;

void mr_drive_without_lookups(void)
{
    no_lookups = true;
}

static void check_numbers(struct drive *d)
{
    bool errors = false;
    if (no_lookups || d->how != IN_ORDER || mr_dataset_indexed(d->ds, NULL) != MR_OK)
        return;
    for (size_t i = 0; i < d->expected.n; i++)
        errors = errors || d->expected.v[i].text[0] == '!';
    mr_test_context("%s: by number", d->what);
    if (!errors || !counts_otherwise(d->ds))
        check_lookups(d, errors);
    if (!errors)
        check_skips(d);
}

/* ---- everything of one graph ---- */

static void drive(mr_dataset *ds, const char *what, const char *expected, order how)
{
    struct drive d = {.ds = ds, .what = what, .how = how, .random = mr_test_seed()};
    mr_status st;
    mr_events_split(&d.expected, expected);
    if (how == ANY_ORDER)
        mr_events_sort(&d.expected);
    for (size_t i = 0; i < 3; i++)
        mr_ok(mr_executor_new((int)threads[i], &d.pools[i], &st), &st);
    for (int way = 0; way < N_WAYS; way++) {
        if (threads[way / 3] == 0 && mr_test_for_races())
            continue;
        mr_test_context("%s: blocks of %" PRId64 ", %" PRId64 " threads", what, block_rows[way % 3],
                        threads[way / 3]);
        run_way(&d, way);
        mr_test_context("%s: saving, blocks of %" PRId64 ", %" PRId64 " threads", what,
                        block_rows[way % 3], threads[way / 3]);
        check_positions(&d, way, way % 2 ? 2 : 1, false);
        check_positions(&d, way, way % 2 ? 1024 : 5, true);
    }
    check_numbers(&d);
    for (size_t i = 0; i < 3; i++)
        mr_executor_free(d.pools[i]);
    mr_events_reset(&d.expected, 0);
    mr_test_context("%s", "");
}

mr_dataset *mr_drive_build(const char *text)
{
    mr_dataset *ds = NULL;
    mr_status st;
    mr_ok(mr_dataset_from_text(text, strlen(text), NULL, &ds, &st), &st);
    return ds;
}

static char *show(const char *text, mr_status *error)
{
    mr_events e = {0};
    struct drive d = {.ds = mr_drive_build(text)};
    mr_iterator *it = open_way(&d, 2, false);
    mr_status_init(&e.error);
    mr_status last;
    mr_status_init(&last);
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc;
    while ((rc = mr_events_pull(&e, it, 1024, &b)) != MR_END)
        if (rc < 0)
            last = e.error;
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(d.ds);
    char *shown = mr_events_join(&e);
    mr_events_reset(&e, 0);
    if (error)
        *error = last;
    return shown;
}

char *mr_drive_show(const char *text)
{
    return show(text, NULL);
}

void mr_drive_error(const char *text, mr_status *error)
{
    free(show(text, error));
}

static void drive_text(const char *text, const char *expected, order how)
{
    mr_fault_count();
    free(mr_drive_show(text)); /* what lives as long as the process is made */
    mr_buffer_pool_trim();
    int64_t live = mr_fault_live_allocations(), files = mr_fault_open_files();
    mr_dataset *ds = mr_drive_build(text);
    drive(ds, text, expected, how);
    /* What it prints is the same graph. */
    char *printed, *out;
    mr_status st;
    mr_ok(mr_dataset_to_text(ds, &printed, &st), &st);
    mr_dataset_unref(ds);
    out = mr_drive_show(printed);
    struct drive d = {.how = how};
    mr_events e = {0};
    mr_events_split(&e, out);
    mr_events_split(&d.expected, expected);
    if (how == ANY_ORDER)
        mr_events_sort(&d.expected);
    mr_test_context("%s, printed and parsed again", text);
    compare(&d, &e);
    mr_events_reset(&e, 0);
    mr_events_reset(&d.expected, 0);
    free(out);
    mr_free(printed);
    mr_buffer_pool_trim();
    mr_test_context("%s: left over", text);
    mr_eq_i64(mr_fault_live_allocations(), live);
    mr_eq_i64(mr_fault_open_files(), files);
    mr_test_context("%s", "");
}

void mr_drive(const char *text, const char *expected)
{
    drive_text(text, expected, IN_ORDER);
}

void mr_drive_any(const char *text, const char *expected)
{
    drive_text(text, expected, ANY_ORDER);
}

void mr_drive_dataset(mr_dataset *ds, const char *expected)
{
    mr_status st;
    mr_ok(mr_dataset_check(ds, &st), &st);
    drive(ds, "a dataset", expected, IN_ORDER);
    mr_dataset_unref(ds);
}

void mr_drive_alike(const char *text)
{
    char *expected = mr_drive_show(text);
    mr_drive(text, expected);
    free(expected);
}

void mr_drive_bad(const char *text, const char *part)
{
    mr_dataset *ds = NULL;
    mr_status st;
    mr_code rc = mr_dataset_from_text(text, strlen(text), NULL, &ds, &st);
    if (rc == MR_OK)
        rc = mr_dataset_check(ds, &st);
    mr_dataset_unref(ds);
    mr_test_context("%s", text);
    mr_code_is(rc, MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, part);
}

void mr_drive_count(const char *text, int64_t cardinality)
{
    mr_dataset *ds = mr_drive_build(text);
    mr_test_context("%s", text);
    mr_eq_i64(mr_dataset_cardinality(ds), cardinality);
    mr_dataset_unref(ds);
}

const char *mr_drive_path(const char *graph)
{
    static char texts[8][8192];
    static unsigned turn;
    char *text = texts[turn++ % 8];
    size_t n = 0;
    for (; *graph; graph++)
        n += (size_t)snprintf(text + n, sizeof texts[0] - n, *graph == '@' ? "%s" : "%.1s",
                              *graph == '@' ? mr_test_dir() : graph);
    return text;
}

void mr_drive_bytes(const char *name, const void *bytes, size_t n)
{
    FILE *f = fopen(mr_test_path(name), "w");
    mr_check(f && fwrite(bytes, 1, n, f) == n);
    fclose(f);
}

void mr_drive_file(const char *name, const char *text)
{
    mr_drive_bytes(name, text, strlen(text));
}

/* ---- faults ---- */

static void run_with_faults(mr_dataset *ds)
{
    mr_iterator_opts opts = {.has_threads = true, .block_rows = 3, .positions = true};
    mr_iterator *it = NULL;
    mr_status st;
    void *bytes = NULL;
    size_t size = 0;
    if (mr_fault_expect(mr_iterator_open(&it, ds, &opts, &st), &st) != MR_OK)
        return;
    mr_block b = MR_BLOCK_EMPTY;
    mr_code rc = MR_OK;
    for (int i = 0; i < 200 && rc != MR_END; i++) {
        rc = mr_iterator_next(it, 3, &b, &st);
        if (rc < 0)
            mr_check(st.message[0]);
        if (i == 2 && mr_fault_expect(mr_iterator_save(it, &bytes, &size, &st), &st) == MR_OK) {
            rc = mr_fault_expect(mr_iterator_restore(it, bytes, size, &st), &st);
            mr_free(bytes);
            if (rc < 0) /* it may only be closed then */
                break;
        }
    }
    mr_block_reset(&b);
    mr_iterator_close(it);
}

void mr_drive_faults(const char *text)
{
    mr_fault_each_allocation(n)
    {
        mr_dataset *ds = NULL;
        mr_status st;
        mr_code rc = mr_fault_expect(mr_dataset_from_text(text, strlen(text), NULL, &ds, &st), &st);
        if (rc == MR_OK && mr_fault_expect(mr_dataset_check(ds, &st), &st) == MR_OK)
            run_with_faults(ds);
        else
            mr_check(mr_fault_seen());
        mr_dataset_unref(ds);
    }
}

void mr_drive_goes_on(const char *text)
{
    char *expected = mr_drive_show(text);
    struct drive d = {.ds = mr_drive_build(text)};
    mr_events_split(&d.expected, expected);
    mr_test_context("%s, going on after a fault", text);
    mr_fault_each_allocation(n)
    {
        mr_iterator_opts opts = {.has_threads = true};
        mr_iterator *it = NULL;
        mr_status st;
        mr_events e = {0};
        mr_block b = MR_BLOCK_EMPTY;
        if (mr_fault_expect(mr_iterator_open(&it, d.ds, &opts, &st), &st) != MR_OK)
            continue;
        for (mr_code rc = MR_OK; rc != MR_END;) {
            size_t before = e.n;
            rc = mr_events_pull(&e, it, 3, &b);
            if (rc == MR_RESOURCE_EXHAUSTED && mr_fault_seen())
                mr_events_reset(&e, before);
        }
        mr_block_reset(&b);
        mr_iterator_close(it);
        compare(&d, &e);
        mr_events_reset(&e, 0);
    }
    mr_test_context("%s", "");
    mr_events_reset(&d.expected, 0);
    mr_dataset_unref(d.ds);
    free(expected);
}
