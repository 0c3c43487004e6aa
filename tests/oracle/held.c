/* SPDX-License-Identifier: Apache-2.0 */
/* Holds everything at once against what the oracle says of a graph: values, errors in their places,
 * identities, cardinality and memory, for threads x blocks x rows asked for x chains of positions.
 *
 * Standard input, lines of cases one after the other:
 *     case NUMBER          a new case
 *     wrong                it cannot be built
 *     loose                the count of epochs may differ between runs: where more is asked for, or
 *                          read ahead, than is used, a cache may be complete early
 *     cardinality N
 *     ids ID...            of the next event; ID is PLACE:FILE:ORDINAL:EPOCH. PLACE is the number
 *                          of a source, and "?" for one in a function, whose hash must be the same
 *                          in every run; EPOCH is 2^64 - 1 in loose cases
 *     event TEXT           as in tests/events.h; "!" for an error
 *     more                 there are more events than those
 *     folder PATH          where the graph's files are
 *     same N SEED          of a graph without events: its identities are the same for all threads
 *                          and blocks, restored after N places of each run (0: after all), and for
 *                          two workers that share its data
 *     graph TEXT           runs it and prints "ok NUMBER" or "FAIL NUMBER: why"
 * Before a graph runs, "start NUMBER" is printed: what does not end or crashes is the last one. */
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pipeline/graph/dataset.h"
#include "pipeline/memory/buffer.h"
#include "shard/passes/auto_shard.h"
#include "tests/events.h"
#include "transport/service/service.h"

enum { MOST_EVENTS = 256, MOST_SAME = 200, WAYS = 3, CHAINS = 3, LINKS = 4, SECONDS = 600 };

/* Live bytes at most: the graphs' values are small, so what is held is blocks of 256 KiB, a few for
 * each op, and those of the pool. */
enum { MOST_BYTES_OF_A_CASE = 48 << 20 };

#define ANY_EPOCH UINT64_MAX

struct place {
    char name[24]; /* a number, or "?" for a source in a function */
    uint64_t file, ordinal, epoch;
};

static struct test_case {
    long number;
    bool wrong, more, same;
    size_t places; /* where to save; 0: everywhere */
    uint64_t seed;
    int64_t cardinality;
    bool loose;
    mr_events events, first; /* first: of the first run */
    struct place *ids[MOST_EVENTS];
    size_t n_ids[MOST_EVENTS];
} now;

static mr_executor *pools[3];
static const int64_t threads[] = {0, 1, 4};
static uint64_t random_state;
static jmp_buf failed;

static _Noreturn void fail(const char *fmt, ...) MR_PRINTF(1, 2);
static _Noreturn void fail(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    printf("FAIL %ld: ", now.number);
    vprintf(fmt, ap);
    puts("");
    va_end(ap);
    fflush(stdout);
    longjmp(failed, 1);
}

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t draw(uint64_t below)
{
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % below;
}

/* ---- live memory ---- */

static atomic_int_fast64_t live, peak;
static int64_t most_used; /* by any case */
static size_t shared;     /* graphs whose records two workers shared */

static void *counted(void *p)
{
    int64_t now_live = p ? atomic_fetch_add(&live, (int64_t)malloc_usable_size(p)) : 0;
    int64_t most = atomic_load(&peak);
    now_live += p ? (int64_t)malloc_usable_size(p) : 0;
    while (now_live > most && !atomic_compare_exchange_weak(&peak, &most, now_live))
        ;
    return p;
}

static void uncounted(void *p)
{
    if (p)
        atomic_fetch_sub(&live, (int64_t)malloc_usable_size(p));
}

static void *count_malloc(void *ctx, size_t n)
{
    (void)ctx;
    return counted(malloc(n));
}

static void *count_realloc(void *ctx, void *old, size_t n)
{
    (void)ctx;
    int64_t before = old ? (int64_t)malloc_usable_size(old) : 0;
    void *p = realloc(old, n);
    if (p) {
        atomic_fetch_sub(&live, before);
        counted(p);
    }
    return p;
}

static void *count_aligned(void *ctx, size_t alignment, size_t n)
{
    (void)ctx;
    void *p = NULL;
    return posix_memalign(&p, alignment, n) == 0 ? counted(p) : NULL;
}

static void count_free(void *ctx, void *p)
{
    (void)ctx;
    uncounted(p);
    free(p);
}

/* ---- one way of running ---- */

struct way {
    int pool;
    int64_t rows;
    size_t want;
};

static struct way draw_way(void)
{
    static const int64_t rows[] = {1, 3, 1024};
    static const size_t wants[] = {1, 2, 5, 64};
    return (struct way){(int)draw(3), rows[draw(3)], wants[draw(4)]};
}

static mr_iterator *open_way(mr_dataset *ds, struct way w, bool positions)
{
    mr_iterator *it = NULL;
    mr_status st;
    mr_iterator_opts opts = {.executor = draw(4) ? pools[w.pool] : NULL,
                             .threads = threads[w.pool],
                             .has_threads = true,
                             .block_rows = w.rows,
                             .identities = true,
                             .positions = positions,
                             .has_seed = now.same};
    if (mr_iterator_open(&it, ds, &opts, &st) != MR_OK)
        fail("cannot be opened: %s", st.message);
    return it;
}

/* Sources are numbers; those in functions are hashes. */
static bool same_source(const struct place *p, uint64_t source)
{
    return p->name[0] == '?' || strtoull(p->name, NULL, 10) == source;
}

/* A dataset that a function captures is counted in each of the functions that open it, where the
 * oracle counts all openings. */
static bool same_epoch(const struct place *p, uint64_t epoch)
{
    if (p->epoch == ANY_EPOCH)
        return true;
    return p->name[0] == '?' ? epoch <= p->epoch : epoch == p->epoch;
}

static void check_ids(const char *how, const mr_event *e, size_t at)
{
    if (e->text[0] == '!')
        return;
    bool same = e->n_ids == now.n_ids[at];
    for (size_t i = 0; same && i < e->n_ids; i++) {
        const struct place *p = &now.ids[at][i];
        same = e->ids[i].file == p->file && e->ids[i].ordinal == p->ordinal &&
               same_epoch(p, e->ids[i].epoch) && same_source(p, e->ids[i].source);
    }
    /* Sources in functions are hashes, which only have to be the same in every run. */
    const mr_event *before = at < now.first.n && !now.loose ? &now.first.v[at] : NULL;
    if (same && before && before->n_ids == e->n_ids && e->n_ids)
        same = memcmp(before->ids, e->ids, e->n_ids * sizeof *e->ids) == 0;
    if (same)
        return;
    char got[600] = "", wanted[600] = "";
    size_t n = 0, m = 0;
    for (size_t i = 0; i < e->n_ids && n < sizeof got; i++)
        n += (size_t)snprintf(got + n, sizeof got - n,
                              " %" PRIx64 ":%" PRIu64 ":%" PRIu64 ":%" PRIu64, e->ids[i].source,
                              e->ids[i].file, e->ids[i].ordinal, e->ids[i].epoch);
    for (size_t i = 0; i < now.n_ids[at] && m < sizeof wanted; i++)
        m += (size_t)snprintf(wanted + m, sizeof wanted - m, " %s:%" PRIu64 ":%" PRIu64 ":%" PRIu64,
                              now.ids[at][i].name, now.ids[at][i].file, now.ids[at][i].ordinal,
                              now.ids[at][i].epoch);
    fail("%s: event %zu, %s, has the identities%s instead of%s", how, at, e->text, got, wanted);
}

/* Events of e from `from` on are those of the case from there on. */
static void check(const char *how, const mr_events *e, size_t from)
{
    for (size_t i = 0; i < e->n; i++) {
        if (from + i >= now.events.n) {
            if (now.more)
                return;
            fail("%s: event %zu is %s instead of the end", how, from + i, e->v[i].text);
        }
        if (!mr_event_is(e->v[i].text, now.events.v[from + i].text))
            fail("%s: event %zu is %s instead of %s", how, from + i, e->v[i].text,
                 now.events.v[from + i].text);
        check_ids(how, &e->v[i], from + i);
    }
    if (from + e->n < now.events.n)
        fail("%s: the end instead of event %zu, %s", how, from + e->n,
             now.events.v[from + e->n].text);
}

static void run_plain(mr_dataset *ds, struct way w)
{
    char how[100];
    mr_events e = {0};
    snprintf(how, sizeof how, "%d threads, blocks of %d, %d wanted", (int)threads[w.pool],
             (int)w.rows, (int)w.want);
    mr_iterator *it = open_way(ds, w, false);
    mr_events_run(&e, it, w.want, now.events.n + 1);
    if (!now.more) {
        mr_block b = MR_BLOCK_EMPTY;
        if (e.n == now.events.n && mr_events_pull(&e, it, 1, &b) != MR_END)
            fail("%s: the end does not stay", how);
        mr_block_reset(&b);
    }
    mr_iterator_close(it);
    check(how, &e, 0);
    if (!now.first.v)
        now.first = e;
    else
        mr_events_reset(&e, 0);
}

/* Takes up to `stop` events, then saves, perhaps after the first rows of a block. */
static size_t save_somewhere(mr_iterator *it, size_t stop, size_t want, mr_events *e, void **bytes,
                             size_t *size)
{
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    mr_code rc = MR_OK;
    size_t before = 0;
    while (e->n < stop && rc != MR_END) {
        before = e->n;
        rc = mr_events_pull(e, it, want, &b);
    }
    size_t used = e->n;
    if (rc == MR_OK && b.rows > 1 && draw(3)) { /* more was asked for than is used */
        used = before + 1 + (size_t)draw(b.rows - 1);
        rc = mr_iterator_save_at(it, &b, used - before, bytes, size, &st);
    } else
        rc = mr_iterator_save(it, bytes, size, &st);
    mr_block_reset(&b);
    if (rc != MR_OK)
        fail("cannot be saved after event %zu: %s", used, st.message);
    mr_events_reset(e, used);
    if (!used)
        *e = (mr_events){0};
    return used;
}

/* Saved, restored elsewhere, saved there, and so on. */
static void run_chain(mr_dataset *ds)
{
    char how[200] = "";
    size_t at = 0, n = 0;
    void *bytes = NULL;
    size_t size = 0;
    for (int link = 0; link <= LINKS; link++) {
        struct way w = draw_way();
        mr_events e = {0};
        mr_status st;
        mr_iterator *it = open_way(ds, w, true);
        n += (size_t)snprintf(how + n, sizeof how - n, "%s%zu (%d threads, blocks of %d)",
                              link ? ", restored after " : "from ", at, (int)threads[w.pool],
                              (int)w.rows);
        n = n < sizeof how ? n : sizeof how - 1;
        if (bytes && mr_iterator_restore(it, bytes, size, &st) != MR_OK)
            fail("%s: cannot be restored: %s", how, st.message);
        mr_free(bytes);
        bytes = NULL;
        size_t left = now.events.n - at;
        if (link == LINKS || left == 0) {
            mr_events_run(&e, it, w.want, left + 1);
            check(how, &e, at);
            link = LINKS;
        } else {
            size_t used = save_somewhere(it, (size_t)draw(left + 1), w.want, &e, &bytes, &size);
            for (size_t i = 0; i < used; i++) {
                if (at + i >= now.events.n) {
                    used = now.events.n - at;
                    break;
                }
                if (!mr_event_is(e.v[i].text, now.events.v[at + i].text))
                    fail("%s: event %zu is %s instead of %s", how, at + i, e.v[i].text,
                         now.events.v[at + i].text);
                check_ids(how, &e.v[i], at + i);
            }
            if (at + used == now.events.n && now.more) /* nothing more is known of it */
                link = LINKS;
            at += used;
        }
        mr_events_reset(&e, 0);
        mr_iterator_close(it);
    }
    mr_free(bytes);
}

/* ---- cases ---- */

static void forget(void)
{
    for (size_t i = 0; i < now.events.n && i < MOST_EVENTS; i++)
        free(now.ids[i]);
    mr_events_reset(&now.events, 0);
    mr_events_reset(&now.first, 0);
    memset(&now, 0, sizeof now);
    now.cardinality = MR_UNKNOWN_COUNT;
}

/* The oracle does not always know as much; what the library says then must be true (but for what a
 * graph asserts of itself). */
static void check_cardinality(const char *graph, int64_t n)
{
    bool known = now.cardinality != MR_UNKNOWN_COUNT;
    if (!known && strstr(graph, "assert_cardinality"))
        return;
    int64_t elements = 0;
    for (size_t i = 0; i < now.events.n; i++)
        elements += now.events.v[i].text[0] != '!';
    /* Errors may take the place of several elements. The oracle does not know that all datasets of
     * a function are equally long, perhaps empty, which changes what these ops above them say:
     * as in tf.data, skip(-1) of an endless dataset and a finite choice of endless ones are
     * endless. */
    bool above = strstr(graph, "repeat()") || strstr(graph, "skip(-") ||
                 strstr(graph, "choose_from_datasets");
    bool exact = !now.more && n == elements && (size_t)elements == now.events.n;
    bool fine = known    ? n == now.cardinality || exact
                : n >= 0 ? n >= elements
                         : n == MR_UNKNOWN_COUNT || now.more || above;
    if (!fine)
        fail("the cardinality is %" PRId64 ", the oracle's %" PRId64, n, now.cardinality);
}

/* ---- the same identities, however it runs ---- */

/* Makes what a plain run gives the wanted events. */
static void take_events(mr_dataset *ds)
{
    mr_iterator *it = open_way(ds, (struct way){0, 1024, 1024}, false);
    mr_events_run(&now.events, it, 1024, MOST_SAME);
    mr_block b = MR_BLOCK_EMPTY;
    mr_events rest = {0};
    now.more = mr_events_pull(&rest, it, 1, &b) != MR_END;
    mr_block_reset(&b);
    mr_events_reset(&rest, 0);
    mr_iterator_close(it);
    for (size_t i = 0; i < now.events.n; i++) {
        const mr_event *e = &now.events.v[i];
        now.n_ids[i] = e->n_ids;
        now.ids[i] = calloc(e->n_ids + 1, sizeof *now.ids[i]);
        for (size_t k = 0; k < e->n_ids; k++) {
            struct place *p = &now.ids[i][k];
            snprintf(p->name, sizeof p->name, "%" PRIu64, e->ids[k].source);
            p->file = e->ids[k].file;
            p->ordinal = e->ids[k].ordinal;
            p->epoch = e->ids[k].epoch;
        }
    }
}

/* Saves after event `at` and continues with a new graph, as another process would. */
static void run_restored(mr_dataset *ds, const char *graph, struct way w, size_t at)
{
    char how[120];
    mr_events e = {0}, rest = {0};
    mr_status st;
    mr_dataset *other = NULL;
    void *bytes = NULL;
    size_t size;
    snprintf(how, sizeof how, "%d threads, blocks of %d, restored after event %zu",
             (int)threads[w.pool], (int)w.rows, at);
    mr_iterator *it = open_way(ds, w, true);
    mr_events_run(&e, it, w.want, at);
    if (mr_iterator_save(it, &bytes, &size, &st) != MR_OK)
        fail("%s: cannot be saved: %s", how, st.message);
    mr_iterator_close(it);
    if (mr_dataset_from_text(graph, strlen(graph), NULL, &other, &st) != MR_OK)
        fail("%s: cannot be built: %s", how, st.message);
    it = open_way(other, w, true);
    mr_dataset_unref(other);
    if (mr_iterator_restore(it, bytes, size, &st) != MR_OK)
        fail("%s: cannot be restored: %s", how, st.message);
    mr_free(bytes);
    mr_events_run(&rest, it, w.want, now.events.n - e.n + 1);
    mr_iterator_close(it);
    check(how, &rest, e.n);
    mr_events_reset(&e, 0);
    mr_events_reset(&rest, 0);
}

struct records {
    mr_identity *v;
    size_t n;
};

static void add_records(struct records *r, const mr_events *e)
{
    for (size_t i = 0; i < e->n; i++) {
        r->v = realloc(r->v, (r->n + e->v[i].n_ids + 1) * sizeof *r->v);
        if (!r->v)
            abort();
        if (e->v[i].n_ids)
            memcpy(r->v + r->n, e->v[i].ids, e->v[i].n_ids * sizeof *r->v);
        r->n += e->v[i].n_ids;
    }
}

static int by_bytes(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(mr_identity));
}

/* Where two workers emit as many records as one does alone, they are the same records. (A take
 * above the shard, for one, makes them others.) */
static void run_shards(mr_dataset *ds, mr_shard_policy policy)
{
    struct records one = {0}, two = {0};
    add_records(&one, &now.events);
    bool fine = true;
    for (int64_t i = 0; i < 2 && fine; i++) {
        mr_auto_shard_opts opts = {.num_workers = 2, .index = i, .policy = policy};
        mr_dataset *part = NULL;
        mr_iterator *it = NULL;
        mr_events e = {0};
        mr_iterator_opts o = {.has_threads = true, .identities = true, .has_seed = true};
        fine = mr_auto_shard(ds, &opts, &part, NULL, NULL, NULL) == MR_OK;
        if (fine && (fine = mr_iterator_open(&it, part, &o, NULL) == MR_OK))
            mr_events_run(&e, it, 64, MOST_SAME);
        for (size_t k = 0; k < e.n; k++)
            fine = fine && e.v[k].text[0] != '!';
        add_records(&two, &e);
        mr_events_reset(&e, 0);
        mr_iterator_close(it);
        mr_dataset_unref(part);
    }
    if (fine && one.n == two.n && one.n) {
        qsort(one.v, one.n, sizeof *one.v, by_bytes);
        qsort(two.v, two.n, sizeof *two.v, by_bytes);
        shared++;
        for (size_t i = 0; i < one.n; i++)
            if (memcmp(&one.v[i], &two.v[i], sizeof *one.v) != 0)
                fail("two workers (policy %d): a record is %" PRIx64 ":%" PRIu64 ":%" PRIu64
                     ":%" PRIu64 " instead of %" PRIx64 ":%" PRIu64 ":%" PRIu64 ":%" PRIu64,
                     (int)policy, two.v[i].source, two.v[i].file, two.v[i].ordinal, two.v[i].epoch,
                     one.v[i].source, one.v[i].file, one.v[i].ordinal, one.v[i].epoch);
    }
    free(one.v);
    free(two.v);
}

static void run_same(const char *graph)
{
    mr_dataset *ds = NULL;
    mr_status st;
    random_state = now.seed + (uint64_t)now.number;
    mr_code rc = mr_dataset_from_text(graph, strlen(graph), NULL, &ds, &st);
    if (rc == MR_OK)
        rc = mr_dataset_check(ds, &st);
    if (rc != MR_OK)
        fail("it cannot be built: %s", st.message);
    take_events(ds);
    for (int pool = 0; pool < 3; pool += 2)
        for (int rows = 0; rows < 3; rows++) {
            static const int64_t blocks[] = {1, 3, 1024};
            struct way w = {pool, blocks[rows], (size_t)blocks[rows]};
            run_plain(ds, w);
            if (now.places == 0)
                for (size_t at = 0; at <= now.events.n; at++)
                    run_restored(ds, graph, w, at);
            for (size_t i = 0; i < now.places; i++)
                run_restored(ds, graph, w, (size_t)draw(now.events.n + 1));
        }
    if (!now.more) {
        run_shards(ds, MR_SHARD_FILE);
        run_shards(ds, MR_SHARD_DATA);
    }
    mr_dataset_unref(ds);
}

static void run_case(const char *graph)
{
    mr_dataset *ds = NULL;
    mr_status st;
    random_state = (uint64_t)now.number;
    mr_code rc = mr_dataset_from_text(graph, strlen(graph), NULL, &ds, &st);
    if (rc == MR_OK)
        rc = mr_dataset_check(ds, &st);
    if (now.wrong) {
        mr_dataset_unref(ds);
        if (rc != MR_INVALID_ARGUMENT)
            fail("it was built, or failed with another code: %s", mr_code_text(rc));
        return;
    }
    if (rc != MR_OK)
        fail("it cannot be built: %s", st.message);
    check_cardinality(graph, mr_dataset_cardinality(ds));
    mr_buffer_pool_trim();
    int64_t before = atomic_load(&live);
    atomic_store(&peak, before);
    run_plain(ds, (struct way){0, 1024, 1024});
    for (int i = 0; i < WAYS; i++)
        run_plain(ds, draw_way());
    for (int i = 0; i < CHAINS; i++)
        run_chain(ds);
    mr_dataset_unref(ds);
    if (atomic_load(&peak) - before > most_used)
        most_used = atomic_load(&peak) - before;
    if (atomic_load(&peak) - before > MOST_BYTES_OF_A_CASE)
        fail("%" PRId64 " KiB were in use", (atomic_load(&peak) - before) / 1024);
}

static void add_event(const char *text)
{
    if (now.events.n == MOST_EVENTS)
        return;
    mr_events_add(&now.events, text, strlen(text));
}

static void add_ids(char *list)
{
    size_t n = 0, at = now.events.n;
    for (char *save = NULL, *p = strtok_r(list, " ", &save); p; p = strtok_r(NULL, " ", &save)) {
        struct place *more = realloc(now.ids[at], (n + 1) * sizeof *more);
        if (!more)
            abort();
        now.ids[at] = more;
        if (sscanf(p, "%23[^:]:%" SCNu64 ":%" SCNu64 ":%" SCNu64, more[n].name, &more[n].file,
                   &more[n].ordinal, &more[n].epoch) != 4)
            abort();
        now.n_ids[at] = ++n;
    }
}

int main(void)
{
    static const mr_allocator counting = {count_malloc, count_realloc, count_aligned, count_free,
                                          NULL};
    mr_allocator_set(&counting);
    if (mr_service_register_ops(NULL) != MR_OK)
        return 2;
    for (size_t i = 0; i < 3; i++)
        if (mr_executor_new((int)threads[i], &pools[i], NULL) != MR_OK)
            return 2;
    char *line = NULL;
    size_t room = 0;
    volatile long bad = 0;
    ssize_t n;
    while ((n = getline(&line, &room, stdin)) > 0) {
        line[n - 1] = '\0';
        char *rest = strchr(line, ' ');
        rest = rest ? rest + 1 : line + n - 1;
        if (strncmp(line, "case ", 5) == 0) {
            forget();
            now.number = strtol(rest, NULL, 10);
        } else if (strcmp(line, "loose") == 0)
            now.loose = true;
        else if (strcmp(line, "wrong") == 0)
            now.wrong = true;
        else if (strncmp(line, "cardinality ", 12) == 0)
            now.cardinality = strtoll(rest, NULL, 10);
        else if (strncmp(line, "ids", 3) == 0)
            add_ids(rest);
        else if (strncmp(line, "event ", 6) == 0)
            add_event(rest);
        else if (strncmp(line, "folder ", 7) == 0) {
            if (chdir(rest) != 0)
                return 2;
        } else if (strncmp(line, "same ", 5) == 0) {
            now.same = true;
            now.places = strtoul(rest, &rest, 10);
            now.seed = strtoull(rest, NULL, 10);
        } else if (strcmp(line, "more") == 0)
            now.more = true;
        else if (strncmp(line, "graph ", 6) == 0) {
            printf("start %ld\n", now.number);
            fflush(stdout);
            alarm(SECONDS);
            if (setjmp(failed))
                bad++;
            else {
                now.same ? run_same(rest) : run_case(rest);
                printf("ok %ld\n", now.number);
            }
            alarm(0);
        }
    }
    printf("most %" PRId64 " KiB, shared %zu\n", most_used / 1024, shared);
    forget();
    free(line);
    for (size_t i = 0; i < 3; i++)
        mr_executor_free(pools[i]);
    return bad ? 1 : 0;
}
