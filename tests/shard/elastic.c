/* SPDX-License-Identifier: Apache-2.0 */
/* Elastic jobs in C. tests/cli/elastic.py has random graphs. */
#include "pipeline/bytes.h"
#include "pipeline/crc32c.h"
#include "pipeline/ops/batch.h"
#include "pipeline/ops/sequence.h"
#include "pipeline/ops/sources.h"
#include "shard/distribute/elastic_schedule.h"
#include "shard/streams/stream_cut.h"
#include "tests/fault.h"
#include "tests/shard/steps.h"

#include <pthread.h>
#include <stdatomic.h>

enum { STREAMS = 7 };

typedef struct job {
    mr_dist_dataset *dd;
    mr_dist_iterator *it;
} job;

static job open_job(const char *expr, mr_distribute_opts o, const mr_dist_iterator_opts *run)
{
    mr_status st;
    job j = {0};
    mr_dataset *ds = mr_test_graph(expr);
    if (!o.elastic_streams && !strstr(expr, "elastic_streams"))
        o.elastic_streams = STREAMS;
    mr_ok(mr_distribute_dataset(ds, &o, &j.dd, &st), &st);
    mr_dataset_unref(ds);
    mr_ok(mr_dist_iterator_open(&j.it, j.dd, run, &st), &st);
    return j;
}

static void close_job(job *j)
{
    mr_dist_iterator_close(j->it);
    mr_dist_dataset_free(j->dd);
}

static const mr_dist_iterator_opts quiet = {.run = {.has_threads = true, .positions = true}};

/* ---- the schedule ---- */

MR_TEST(each_stream_has_one_replica_and_each_step_its_rows)
{
    for (int64_t streams = 1; streams <= 40; streams++)
        for (int64_t n = 1; n <= streams; n++) {
            mr_eq_i64(mr__schedule_first_stream(streams, 0, n), 0);
            mr_eq_i64(mr__schedule_first_stream(streams, n, n), streams);
            for (int64_t r = 0; r < n; r++)
                for (int64_t s = mr__schedule_first_stream(streams, r, n);
                     s < mr__schedule_first_stream(streams, r + 1, n); s++)
                    mr_eq_i64(s * n / streams, r);
        }
    for (int64_t batch = 1; batch < 50; batch += 3)
        for (int64_t live = 1; live <= 10; live++)
            for (int64_t step = 0; step < 25; step++) {
                mr__schedule s = {.streams = 10, .batch = batch, .step = step, .n_live = live};
                int64_t all = 0, most = 2 * ((batch + 9) / 10), even = (batch + live - 1) / live;
                for (int64_t j = 0; j < live; j++)
                    all += mr__schedule_share(&s, j);
                if (even <= most)
                    mr_eq_i64(all, batch);
                else
                    mr_eq_i64(all, live * most);
            }
}

MR_TEST(every_stream_gives_equally_often)
{
    int64_t rows[10] = {0};
    mr__schedule s = {.streams = 10, .batch = 7, .n_live = 10};
    for (; s.step < 100; s.step++)
        for (int64_t j = 0; j < 10; j++)
            rows[j] += mr__schedule_share(&s, j);
    for (int j = 0; j < 10; j++)
        mr_eq_i64(rows[j], 70);
}

MR_TEST(a_stream_shuffles_its_part_of_the_buffer)
{
    mr_status st;
    mr_dataset *ds = mr_test_graph("range(40).shuffle(10).map(x => x)"), *cut;
    char *text;
    mr_ok(mr_cut_stream(ds, &(mr_stream_cut_opts){.streams = 4, .elastic = true}, &cut, NULL, NULL,
                        &st),
          &st);
    mr_ok(mr_dataset_to_text(cut, &text, &st), &st);
    mr_eq_str(text, "range(40).shard(4, 0).shuffle(3).map(x => x)");
    mr_free(text);
    mr_dataset_unref(cut);
    mr_dataset_unref(ds);
}

/* Small rows of a step are copied together, others are not. */
MR_TEST(steps_do_not_depend_on_the_size_of_rows)
{
    enum { ROWS = 700 };
    static const struct {
        int64_t streams, batch;
        int width;
    } wide[] = {{7, 30, 2}, {7, 30, 125}, {7, 30, 300}, {300, 310, 500}};
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        char expr[128];
        mr_status st;
        mr_step a = {0}, b = {0};
        const mr_distribute_opts o = {.elastic_streams = wide[i].streams};
        snprintf(expr, sizeof expr,
                 "range(%d).map(x => x + zeros([%d], dtype='int64')).batch(%" PRId64 ")", ROWS,
                 wide[i].width, wide[i].batch);
        job many = open_job(expr, o, &quiet);
        snprintf(expr, sizeof expr, "range(%d).batch(%" PRId64 ")", ROWS, wide[i].batch);
        job one = open_job(expr, o, &quiet);
        int64_t rows = 0;
        while (mr_dist_iterator_next(one.it, NULL, &a, &st) == MR_OK) {
            mr_ok(mr_dist_iterator_next(many.it, NULL, &b, &st), &st);
            const mr_array *x = &a.replicas[0].columns[0], *y = &b.replicas[0].columns[0];
            mr_eq_i64(y->shape[0], x->shape[0]);
            for (int64_t r = 0; r < x->shape[0]; r++)
                for (int k = 0; k < wide[i].width; k++)
                    mr_eq_i64(((const int64_t *)mr_array_at(y, 0))[r * wide[i].width + k],
                              ((const int64_t *)mr_array_at(x, 0))[r]);
            rows += x->shape[0];
        }
        mr_eq_i64(rows, ROWS);
        mr_code_is(mr_dist_iterator_next(many.it, NULL, &b, &st), MR_END, &st);
        close_job(&many);
        close_job(&one);
    }
}

MR_TEST(a_dataset_in_two_sources_is_read_for_each)
{
    mr_status st;
    const char *const names[] = {"a", "b"};
    for (int pairs = 0; pairs < 2; pairs++) {
        mr_dataset *whole = mr_test_graph("range(60).take(41)"), *two[] = {whole, whole};
        mr_dataset_ref(whole);
        mr_dataset *both =
            pairs ? mr_zip(two, 2) : mr_mix(names, two, 2, NULL, &(mr_mix_opts){.stop = "all"});
        mr_dataset *ds = mr_batch(both, 8, NULL);
        mr_dist_dataset *dd;
        mr_dist_iterator *it;
        mr_step step;
        int64_t times[60] = {0};
        mr_ok(mr_distribute_dataset(ds, &(mr_distribute_opts){.elastic_streams = 4}, &dd, &st),
              &st);
        mr_ok(mr_dist_iterator_open(&it, dd, &quiet, &st), &st);
        while (mr_dist_iterator_next(it, NULL, &step, &st) == MR_OK)
            for (size_t c = 0; c < step.replicas[0].n_columns; c++) {
                const mr_array *a = &step.replicas[0].columns[c];
                for (int64_t i = 0; i < a->shape[0]; i++)
                    times[((const int64_t *)mr_array_at(a, 0))[i]]++;
            }
        for (int64_t i = 0; i < 41; i++)
            mr_eq_i64(times[i], 2);
        mr_dist_iterator_close(it);
        mr_dist_dataset_free(dd);
        mr_dataset_unref(ds);
    }
}

/* Step 0 of a batch of one row, which stream 0 gives: the others have looked at none of theirs. */
MR_TEST(a_worker_without_rows_has_batches_of_their_shape)
{
    mr_status st;
    mr_step s;
    const char *expr = "range(8).map(x => decode_raw(format('{}', x + 10), \"uint8\")).batch(1)";
    job j = open_job(
        expr, (mr_distribute_opts){.num_workers = 4, .worker = 3, .elastic_streams = 4}, &quiet);
    mr_ok(mr_dist_iterator_next(j.it, NULL, &s, &st), &st);
    mr_check(!s.has_data[0]);
    mr_eq_i64(s.replicas[0].columns[0].shape[0], 0);
    mr_eq_i64(s.replicas[0].columns[0].shape[1], 2);
    close_job(&j);
}

/* ---- processes ---- */

typedef struct cluster {
    pthread_barrier_t barrier;
    pthread_mutex_t lock;
    int64_t sum;
} cluster;

static mr_code add_up(void *ctx, int64_t n_local, int64_t *n_global, mr_status *st)
{
    cluster *c = ctx;
    (void)st;
    pthread_mutex_lock(&c->lock);
    c->sum += n_local;
    pthread_mutex_unlock(&c->lock);
    pthread_barrier_wait(&c->barrier);
    *n_global = c->sum;
    if (pthread_barrier_wait(&c->barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
        c->sum = 0;
    pthread_barrier_wait(&c->barrier);
    return MR_OK;
}

typedef struct process {
    pthread_t thread;
    cluster *cluster;
    const char *expr;
    int64_t worker, workers, limit;
    mr_position_part from, part; /* from: where it begins; part: where it stopped */
    steps_text text;
} process;

static void *run_process(void *ctx)
{
    process *p = ctx;
    mr_status st;
    void *bytes;
    const mr_dist_iterator_opts run = {.run = quiet.run, .agree = add_up, .agree_ctx = p->cluster};
    job j = open_job(p->expr, (mr_distribute_opts){.num_workers = p->workers, .worker = p->worker},
                     &run);
    if (p->from.bytes)
        mr_ok(mr_dist_iterator_restore(j.it, p->from.bytes, p->from.size, &st), &st);
    mr_code rc = steps_run(j.it, p->limit, &p->text, &st);
    mr_check(rc == MR_OK || rc == MR_END);
    mr_ok(mr_dist_iterator_save(j.it, &bytes, &p->part.size, &st), &st);
    p->part.bytes = bytes;
    close_job(&j);
    return NULL;
}

/* Adds `limit` steps of the workers to *t, side by side; from = the position after them. */
static void run_processes(const char *expr, int64_t workers, int64_t limit, mr_position_part *from,
                          steps_text *t)
{
    static process p[STREAMS];
    cluster c = {.lock = PTHREAD_MUTEX_INITIALIZER};
    mr_position_part parts[STREAMS];
    mr_status st;
    void *whole;
    mr_check(pthread_barrier_init(&c.barrier, NULL, (unsigned)workers) == 0);
    for (int64_t i = 0; i < workers; i++) {
        p[i] = (process){.cluster = &c,
                         .expr = expr,
                         .worker = i,
                         .workers = workers,
                         .limit = limit,
                         .from = *from};
        mr_check(pthread_create(&p[i].thread, NULL, run_process, &p[i]) == 0);
    }
    const char *at[STREAMS];
    for (int64_t i = 0; i < workers; i++) {
        pthread_join(p[i].thread, NULL);
        parts[i] = p[i].part;
        at[i] = p[i].text.v;
    }
    while (*at[0])
        for (int64_t i = 0; i < workers; i++) {
            size_t n = strcspn(at[i], "\n");
            steps_put(t, at[i], n);
            steps_put(t, i + 1 < workers ? " " : "\n", 1);
            at[i] += n + 1;
        }
    mr_free((void *)(uintptr_t)from->bytes);
    mr_ok(mr_dist_position_join(parts, (size_t)workers, &whole, &from->size, &st), &st);
    from->bytes = whole;
    for (int64_t i = 0; i < workers; i++)
        mr_free((void *)(uintptr_t)parts[i].bytes);
    pthread_barrier_destroy(&c.barrier);
}

/* The rows of each step on a line, without brackets. */
static void flatten(steps_text *t)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++) {
        char c = t->v[i] == ' ' ? ',' : t->v[i];
        bool again = c == ',' && (n == 0 || t->v[n - 1] == ',' || t->v[n - 1] == '\n');
        if (strchr("[]_", c) || again)
            continue;
        if (c == '\n' && n && t->v[n - 1] == ',')
            n--;
        t->v[n++] = c;
    }
    t->v[n] = 0;
    t->n = n;
}

MR_TEST(processes_agree_and_continue_as_other_numbers_of_them)
{
    static const char *const exprs[] = {"range(103).shuffle(20).batch(8)",
                                        "range(40).filter(x => x % 7 != 2).batch(5)",
                                        "range(60).filter(x => x % 7 > 4).batch(16)",
                                        "range(60).batch(16, drop_remainder=true)",
                                        "range(30).batch(8).take(6).repeat(2)",
                                        "range(70).batch(8).with_options(elastic_streams=40)",
                                        "range(0).batch(3)"};
    for (size_t e = 0; e < sizeof exprs / sizeof *exprs; e++) {
        mr_status st;
        static steps_text one, many;
        mr_position_part at = {0};
        job j = open_job(exprs[e], (mr_distribute_opts){0}, &quiet);
        one.n = many.n = 0;
        one.v[0] = many.v[0] = 0;
        mr_code_is(steps_run(j.it, -1, &one, &st), MR_END, &st);
        close_job(&j);
        for (int64_t workers = 1; workers <= 5; workers++)
            run_processes(exprs[e], workers, workers == 5 ? -1 : 1, &at, &many);
        flatten(&one);
        flatten(&many);
        mr_eq_str(many.v, one.v);
        mr_free((void *)(uintptr_t)at.bytes);
    }
}

/* ---- one process ---- */

/* At most `limit` steps, those that fail included. */
static void steps_from(job *j, int64_t limit, steps_text *t)
{
    mr_status st;
    mr_step s;
    mr_code rc = MR_OK;
    t->n = 0;
    t->v[0] = 0;
    while (rc != MR_END && limit-- != 0)
        if ((rc = mr_dist_iterator_next(j->it, NULL, &s, &st)) == MR_OK)
            steps_put_step(t, &s);
        else if (rc != MR_END)
            steps_put(t, "error\n", 6);
}

MR_TEST(passes_draw_anew_and_rests_change_nothing)
{
    static steps_text first, second, again;
    mr_status st;
    const char *expr = "range(40).shuffle(10).batch(16)";
    job j = open_job(expr, (mr_distribute_opts){.replicas = 2}, &quiet);
    steps_from(&j, -1, &first);
    mr_ok(mr_dist_iterator_rewind(j.it, &st), &st);
    steps_from(&j, -1, &second);
    mr_check(strcmp(first.v, second.v) != 0);
    close_job(&j);
    j = open_job(expr, (mr_distribute_opts){.replicas = 2}, &quiet);
    steps_from(&j, 1, &again);
    mr_ok(mr_dist_iterator_rest(j.it, &st), &st);
    mr_ok(mr_dist_iterator_rewind(j.it, &st), &st);
    steps_from(&j, -1, &again);
    mr_eq_str(again.v, second.v);
    close_job(&j);
    /* A pass without a step is one too. */
    for (int rests = 0; rests < 2; rests++) {
        j = open_job(expr, (mr_distribute_opts){.replicas = 2}, &quiet);
        if (rests)
            mr_ok(mr_dist_iterator_rest(j.it, &st), &st);
        mr_ok(mr_dist_iterator_rewind(j.it, &st), &st);
        steps_from(&j, -1, &again);
        mr_eq_str(again.v, second.v);
        close_job(&j);
    }
}

MR_TEST(a_cancelled_step_is_resumed)
{
    static steps_text want, got;
    mr_status st;
    mr_step s;
    static const char *const exprs[] = {"range(40).shuffle(10).batch(16)",
                                        "range(60).take(45).shuffle(9).batch(8)"};
    for (size_t e = 0; e < 2; e++) {
        job j = open_job(exprs[e], (mr_distribute_opts){.replicas = 3}, &quiet);
        steps_from(&j, -1, &want);
        close_job(&j);
        j = open_job(exprs[e], (mr_distribute_opts){.replicas = 3}, &quiet);
        got.n = 0;
        for (mr_code rc = MR_OK; rc != MR_END;) {
            mr_dist_iterator_cancel(j.it);
            mr_code_is(mr_dist_iterator_next(j.it, NULL, &s, &st), MR_CANCELLED, &st);
            mr_ok(mr_dist_iterator_resume(j.it, &st), &st);
            rc = mr_dist_iterator_next(j.it, NULL, &s, &st);
            if (rc == MR_OK)
                steps_put_step(&got, &s);
        }
        mr_eq_str(got.v, want.v);
        close_job(&j);
    }
}

/* What is dealt is read by threads of the streams, which are ahead of the steps. */
MR_TEST(rests_wait_for_what_streams_read_ahead)
{
    static steps_text want, got;
    mr_status st;
    mr_step s;
    const mr_dist_iterator_opts threads = {
        .run = {.has_threads = true, .threads = 2, .positions = true, .block_rows = 2}};
    const char *expr = "range(900).take(893).map(x => x * 2).prefetch(4).batch(64)";
    job j = open_job(expr, (mr_distribute_opts){.replicas = 2}, &quiet);
    steps_from(&j, -1, &want);
    close_job(&j);
    j = open_job(expr, (mr_distribute_opts){.replicas = 2}, &threads);
    for (int i = 0; i < 60; i++) {
        for (int k = 0; k < i % 4; k++)
            mr_ok(mr_dist_iterator_next(j.it, NULL, &s, &st), &st);
        if (i % 3 == 0) {
            mr_dist_iterator_cancel(j.it);
            mr_ok(mr_dist_iterator_resume(j.it, &st), &st);
            mr_ok(mr_dist_iterator_next(j.it, NULL, &s, &st), &st);
        }
        mr_ok(mr_dist_iterator_rest(j.it, &st), &st);
        mr_ok(mr_dist_iterator_rewind(j.it, &st), &st);
    }
    steps_from(&j, -1, &got);
    mr_eq_str(got.v, want.v);
    close_job(&j);
}

/* What is dealt does not get to its next row while a stream reads ahead. The first step has no
 * row of the other stream, which would wait too. */
MR_TEST(rests_and_closes_do_not_wait_for_what_is_dealt)
{
    static steps_text first, again;
    mr_status st;
    const mr_dist_iterator_opts threads = {
        .run = {.has_threads = true, .threads = 2, .positions = true}};
    const char *expr =
        "range(100000000000000).filter(x => x < 150).take(151).prefetch(200).batch(1)";
    job j = open_job(expr, (mr_distribute_opts){.elastic_streams = 2}, &threads);
    steps_from(&j, 1, &first);
    for (int i = 0; i < 4; i++) {
        mr_ok(mr_dist_iterator_rest(j.it, &st), &st);
        mr_ok(mr_dist_iterator_rewind(j.it, &st), &st);
        steps_from(&j, 1, &again);
        mr_eq_str(again.v, first.v);
    }
    close_job(&j);
}

typedef struct canceller {
    mr_dist_iterator *it;
    atomic_bool reads, stop;
} canceller;

/* Once for each call, after a time that varies, so that some calls complete. */
static void *cancel_often(void *ctx)
{
    canceller *c = ctx;
    for (unsigned i = 0; !atomic_load(&c->stop); i++) {
        usleep(50 * (i % 40));
        if (atomic_exchange(&c->reads, false))
            mr_dist_iterator_cancel(c->it);
    }
    return NULL;
}

/* Wherever it is: also while the batch collects the rows. */
MR_TEST_SLOW(a_step_is_cancelled_at_any_moment)
{
    enum { ROWS = 20000 };
    pthread_t thread;
    mr_status st;
    mr_step step;
    int64_t times[ROWS] = {0}, rows = 0;
    const mr_dist_iterator_opts small = {
        .run = {.has_threads = true, .positions = true, .block_rows = 1}};
    job j = open_job("range(20000).batch(500)", (mr_distribute_opts){0}, &small);
    canceller c = {.it = j.it};
    mr_check(pthread_create(&thread, NULL, cancel_often, &c) == 0);
    for (mr_code rc = MR_OK; rc != MR_END;) {
        atomic_store(&c.reads, true);
        rc = mr_dist_iterator_next(j.it, NULL, &step, &st);
        if (rc == MR_CANCELLED)
            mr_ok(mr_dist_iterator_resume(j.it, &st), &st);
        else if (rc != MR_END)
            mr_ok(rc, &st);
        if (rc != MR_OK)
            continue;
        const mr_array *a = &step.replicas[0].columns[0];
        for (int64_t i = 0; i < a->shape[0]; i++, rows++)
            times[((const int64_t *)mr_array_at(a, 0))[i]]++;
    }
    atomic_store(&c.stop, true);
    pthread_join(thread, NULL);
    mr_eq_i64(rows, ROWS);
    for (int64_t i = 0; i < ROWS; i++)
        mr_eq_i64(times[i], 1);
    close_job(&j);
}

/* The same iterator goes back to a position, also into rows that a hub still keeps. */
MR_TEST(a_used_iterator_is_restored)
{
    static const char *const exprs[] = {
        "range(60).batch(8)",
        "range(60).take(57).batch(8)",
        "range(60).take(57).shuffle(7).batch(8)",
        "range(20).skip(1).repeat(3).shuffle(9).batch(5)",
        "range(30).take(30).repeat(2).filter(x => x % 3 > 0).batch(4)",
        "range(60).map(x => 100 // (x % 9 - 4)).take(57).batch(8)",
        "range(20).map(x => 100 // (x % 3)).skip(1).repeat(3).batch(5)"};
    for (size_t e = 0; e < sizeof exprs / sizeof *exprs; e++) {
        static steps_text want, got;
        mr_status st;
        void *bytes;
        size_t size;
        for (int64_t first = 0; first < 6; first++)
            for (int64_t more = 0; more < 4; more++) {
                job j = open_job(exprs[e], (mr_distribute_opts){.replicas = 2}, &quiet);
                steps_from(&j, first, &got);
                mr_ok(mr_dist_iterator_save(j.it, &bytes, &size, &st), &st);
                steps_from(&j, more, &got);
                mr_ok(mr_dist_iterator_restore(j.it, bytes, size, &st), &st);
                steps_from(&j, -1, &got);
                close_job(&j);
                j = open_job(exprs[e], (mr_distribute_opts){.replicas = 2}, &quiet);
                steps_from(&j, first, &want);
                steps_from(&j, -1, &want);
                close_job(&j);
                mr_eq_str(got.v, want.v);
                mr_free(bytes);
            }
    }
}

/* Takes all steps of n passes. */
static void passes_from(job *j, int n, steps_text *t)
{
    mr_status st;
    for (int i = 0; i < n; i++) {
        (void)steps_run(j->it, -1, t, &st);
        mr_ok(mr_dist_iterator_rewind(j->it, &st), &st);
    }
}

/* The rest of a pass, and the next one. */
static void two_passes_of(job *j, steps_text *t)
{
    mr_status st;
    steps_from(j, -1, t);
    steps_put(t, "next\n", 5);
    mr_ok(mr_dist_iterator_rewind(j->it, &st), &st);
    (void)steps_run(j->it, -1, t, &st);
}

/* Between two passes another number of streams begins the next one, as if it had begun the job,
 * whatever the iterator did before. */
MR_TEST(the_next_pass_may_have_other_streams)
{
    static const char *const exprs[] = {
        "range(40).shuffle(10).batch(8)",
        "range(40).shuffle(10).batch(8).repeat(2)",
        "range(40).shuffle(10).batch(8).take(2)",
        "range(40).shuffle(9).batch(8).take(2).repeat(3)",
        "range(40).take(37).shuffle(10).batch(8)",
        "range(40).shuffle(9).cache().skip(2).repeat(2).batch(8)",
        "mix({\"a\": range(20).shuffle(5), \"b\": range(40, 60)}, stop=\"all\").batch(8)"};
    static const mr_distribute_opts three = {.elastic_streams = 3};
    for (size_t e = 0; e < sizeof exprs / sizeof *exprs; e++)
        for (int i = 0; i < 6; i++) {
            static steps_text all, want, got;
            mr_status st;
            void *bytes;
            size_t size;
            int passes = i / 2, ended = i % 2;
            all.n = 0;
            job j = open_job(exprs[e], (mr_distribute_opts){0}, &quiet);
            passes_from(&j, passes, &all);
            if (ended)
                (void)steps_run(j.it, -1, &all, &st);
            mr_ok(mr_dist_iterator_save(j.it, &bytes, &size, &st), &st);
            close_job(&j);
            all.n = 0;
            j = open_job(exprs[e], three, &quiet);
            passes_from(&j, passes, &all);
            if (ended)
                (void)steps_run(j.it, -1, &all, &st);
            two_passes_of(&j, &want);
            mr_check(!ended || strncmp(want.v, "next\n", 5) == 0);
            mr_ok(mr_dist_iterator_restore(j.it, bytes, size, &st), &st); /* it read more passes */
            two_passes_of(&j, &got);
            mr_eq_str(got.v, want.v);
            close_job(&j);
            j = open_job(exprs[e], three, &quiet);
            mr_ok(mr_dist_iterator_rest(j.it, &st), &st);
            for (int k = 0; k < 3; k++) /* without reading in between */
                mr_ok(mr_dist_iterator_restore(j.it, bytes, size, &st), &st);
            two_passes_of(&j, &got);
            mr_eq_str(got.v, want.v);
            close_job(&j);
            mr_free(bytes);
        }
}

static void count_bytes(void *ctx, size_t bytes)
{
    *(size_t *)ctx += bytes;
}

/* The streams are restored one after the other, and each refills its shuffle; the file is not read
 * again for each of them. */
MR_TEST(what_a_restore_reads_for_one_stream_is_kept_for_the_others)
{
    enum { LINES = 60000, LINE = 8 };
    static char text[LINES * LINE + 1];
    char expr[600];
    mr_status st;
    mr_step step;
    void *bytes;
    size_t size, read = 0;
    for (int i = 0; i < LINES; i++)
        snprintf(text + (size_t)i * LINE, LINE + 1, "%07d\n", i);
    snprintf(expr, sizeof expr, "text_line(\"%s\").shuffle(1000).batch(256)",
             mr_test_file("lines", text));
    const mr_distribute_opts many = {.elastic_streams = 64};
    mr_dist_iterator_opts run = quiet;
    job j = open_job(expr, many, &run);
    for (int i = 0; i < 120; i++)
        mr_ok(mr_dist_iterator_next(j.it, NULL, &step, &st), &st);
    mr_ok(mr_dist_iterator_save(j.it, &bytes, &size, &st), &st);
    close_job(&j);
    run.run.on_read = count_bytes;
    run.run.on_read_ctx = &read;
    j = open_job(expr, many, &run);
    mr_ok(mr_dist_iterator_restore(j.it, bytes, size, &st), &st);
    mr_check(read > 0);
    mr_check(read < 4 * (size_t)LINES * LINE);
    close_job(&j);
    mr_free(bytes);
}

/* The error of a row that was looked at is still the stream's next row after a restore. */
MR_TEST(an_error_looked_at_stays_in_the_position)
{
    static steps_text t;
    mr_status st, want;
    mr_step s;
    void *bytes;
    size_t size;
    const char *expr = "range(14).map(x => 10 // (x - 10)).batch(2)";
    job j = open_job(expr, (mr_distribute_opts){0}, &quiet);
    mr_code rc;
    int64_t steps = 0;
    while ((rc = mr_dist_iterator_next(j.it, NULL, &s, &want)) == MR_OK)
        steps++;
    mr_code_is(rc, MR_INVALID_ARGUMENT, &want);
    mr_check(strstr(want.message, "stream 3"));
    close_job(&j);
    for (int64_t n = 0; n <= steps; n++) {
        j = open_job(expr, (mr_distribute_opts){0}, &quiet);
        mr_code_is(steps_run(j.it, n, &t, &st), MR_OK, &st);
        mr_ok(mr_dist_iterator_save(j.it, &bytes, &size, &st), &st);
        close_job(&j);
        j = open_job(expr, (mr_distribute_opts){0}, &quiet);
        mr_ok(mr_dist_iterator_restore(j.it, bytes, size, &st), &st);
        for (int64_t k = n; k < steps; k++)
            mr_ok(mr_dist_iterator_next(j.it, NULL, &s, &st), &st);
        mr_code_is(mr_dist_iterator_next(j.it, NULL, &s, &st), MR_INVALID_ARGUMENT, &st);
        mr_eq_str(st.message, want.message);
        mr_ok(mr_dist_iterator_next(j.it, NULL, &s, &st), &st);
        mr_free(bytes);
        close_job(&j);
    }
}

MR_TEST(damaged_positions_are_refused)
{
    mr_status st;
    void *bytes, *whole;
    size_t size, n;
    mr_step s;
    job j = open_job("range(40).shuffle(10).batch(16)", (mr_distribute_opts){0}, &quiet);
    mr_ok(mr_dist_iterator_next(j.it, NULL, &s, &st), &st);
    mr_ok(mr_dist_iterator_save(j.it, &bytes, &size, &st), &st);
    mr_check(mr_is_job_position(bytes, size));
    unsigned char *p = bytes;
    for (size_t i = 0; i < size; i++)
        for (int sum = 0; sum < 2; sum++) { /* with the checksum of before, and its own */
            uint32_t crc = (uint32_t)mr__load_le(p + 4, 4);
            p[i] ^= 0x40;
            if (sum && i >= 8)
                mr__store_le(p + 4, mr_crc32c(p + 8, size - 8), 4);
            mr_code rc = mr_dist_position_join(&(mr_position_part){p, size}, 1, &whole, &n, &st);
            mr_check(rc == MR_INVALID_ARGUMENT || (sum && (rc == MR_OK || i < 8)));
            if (rc == MR_OK)
                mr_free(whole);
            p[i] ^= 0x40;
            mr__store_le(p + 4, crc, 4);
        }
    for (size_t cut = 0; cut < size; cut++) {
        mr_code rc = mr_dist_iterator_restore(j.it, bytes, cut, &st);
        mr_check(rc == MR_INVALID_ARGUMENT);
    }
    mr_ok(mr_dist_iterator_restore(j.it, bytes, size, &st), &st);
    mr_free(bytes);
    close_job(&j);
}

MR_TEST(parts_of_different_passes_are_not_joined)
{
    mr_status st;
    mr_step s;
    void *bytes[2], *whole;
    mr_position_part parts[2];
    for (int64_t w = 0; w < 2; w++) {
        job j = open_job("range(40).batch(8)", (mr_distribute_opts){.num_workers = 2, .worker = w},
                         &quiet);
        for (int64_t pass = 0; pass <= w; pass++) {
            if (pass)
                mr_ok(mr_dist_iterator_rewind(j.it, &st), &st);
            mr_ok(mr_dist_iterator_next(j.it, NULL, &s, &st), &st);
        }
        mr_ok(mr_dist_iterator_save(j.it, &bytes[w], &parts[w].size, &st), &st);
        parts[w].bytes = bytes[w];
        close_job(&j);
    }
    mr_code_is(mr_dist_position_join(parts, 2, &whole, &parts[0].size, &st), MR_INVALID_ARGUMENT,
               &st);
    mr_check(strstr(st.message, "part 2 has the pass 1, part 1 has 0"));
    mr_free(bytes[0]);
    mr_free(bytes[1]);
}

MR_TEST(options_are_checked)
{
    mr_status st;
    mr_dist_dataset *dd;
    mr_dataset *ds = mr_test_graph("range(8).batch(4).with_options(elastic_streams=3)");
    mr_ok(mr_distribute_dataset(ds, NULL, &dd, &st), &st);
    mr_eq_i64(mr_dist_dataset_elastic_streams(dd), 3);
    mr_eq_i64(mr_dist_dataset_cardinality(dd), MR_UNKNOWN_COUNT);
    mr_dist_dataset_free(dd);
    const mr_distribute_opts bad[] = {
        {.elastic_streams = -1}, {.elastic_streams = 65537}, {.elastic_streams = 3, .replicas = 4}};
    for (size_t i = 0; i < 3; i++)
        mr_code_is(mr_distribute_dataset(ds, &bad[i], &dd, &st), MR_INVALID_ARGUMENT, &st);
    mr_dataset_unref(ds);
    mr_code_is(mr_distribute_from_text("range(3)", 8, &(mr_distribute_opts){.elastic_streams = 2},
                                       &dd, &st),
               MR_INVALID_ARGUMENT, &st);
}

/* ---- faults ---- */

/* The streams begin it one after the other: those that have begun it do not begin another one. */
MR_TEST(a_pass_that_failed_to_begin_is_begun_again)
{
    static steps_text want, got;
    const char *expr = "range(20).map(x => x + 1).shuffle(6).batch(8)";
    mr_status st;
    job j = open_job(expr, (mr_distribute_opts){.elastic_streams = 3}, &quiet);
    steps_from(&j, -1, &got);
    mr_ok(mr_dist_iterator_rewind(j.it, &st), &st);
    steps_from(&j, -1, &want);
    close_job(&j);
    mr_fault_each_allocation(n)
    {
        mr_status why;
        j = (job){0};
        mr_dataset *ds = NULL;
        const mr_distribute_opts o = {.elastic_streams = 3};
        mr_code rc =
            mr_fault_expect(mr_dataset_from_text(expr, strlen(expr), NULL, &ds, &why), &why);
        if (rc == MR_OK)
            rc = mr_fault_expect(mr_distribute_dataset(ds, &o, &j.dd, &why), &why);
        if (rc == MR_OK)
            rc = mr_fault_expect(mr_dist_iterator_open(&j.it, j.dd, &quiet, &why), &why);
        bool before = mr_fault_seen();
        if (rc == MR_OK && !before) {
            steps_from(&j, -1, &got);
            before = mr_fault_seen();
            rc = mr_fault_expect(mr_dist_iterator_rewind(j.it, &why), &why);
            if (rc != MR_OK)
                mr_ok(mr_dist_iterator_rewind(j.it, &why), &why);
            bool failed = mr_fault_seen();
            steps_from(&j, -1, &got);
            if (!before && (failed || !mr_fault_seen()))
                mr_eq_str(got.v, want.v);
        }
        close_job(&j);
        mr_dataset_unref(ds);
    }
}

MR_TEST(allocation_failures_are_reported)
{
    const char *expr = "range(20).shuffle(3).map(x => x + 1).batch(8).map(x => x * 2)";
    mr_fault_each_allocation(n)
    {
        mr_status st;
        mr_dataset *ds = NULL;
        mr_dist_dataset *dd = NULL;
        mr_dist_iterator *it = NULL;
        mr_step s;
        void *bytes = NULL, *whole = NULL;
        size_t size = 0, all = 0;
        int64_t rows = 0;
        const mr_distribute_opts o = {.replicas = 2, .elastic_streams = 3};
        mr_code rc = mr_fault_expect(mr_dataset_from_text(expr, strlen(expr), NULL, &ds, &st), &st);
        if (rc == MR_OK)
            rc = mr_fault_expect(mr_distribute_dataset(ds, &o, &dd, &st), &st);
        if (rc == MR_OK)
            rc = mr_fault_expect(mr_dist_iterator_open(&it, dd, &quiet, &st), &st);
        bool opened = rc == MR_OK;
        for (int tries = 0; opened && rc != MR_END && tries < 20; tries++) {
            rc = mr_fault_expect(mr_dist_iterator_next(it, NULL, &s, &st), &st);
            for (size_t r = 0; rc == MR_OK && r < s.n_replicas; r++)
                rows += s.has_data[r] ? s.replicas[r].columns[0].shape[0] : 0;
        }
        if (rc == MR_END) /* a lack of memory loses no row, but for those of a batch that failed */
            mr_check(rows == 20 || mr_fault_seen());
        if (rc == MR_END)
            rc = mr_fault_expect(mr_dist_iterator_save(it, &bytes, &size, &st), &st);
        if (rc == MR_OK && bytes)
            rc = mr_fault_expect(
                mr_dist_position_join(&(mr_position_part){bytes, size}, 1, &whole, &all, &st), &st);
        if (rc == MR_OK && whole)
            (void)mr_fault_expect(mr_dist_iterator_restore(it, whole, all, &st), &st);
        mr_free(whole);
        mr_free(bytes);
        mr_dist_iterator_close(it);
        mr_dist_dataset_free(dd);
        mr_dataset_unref(ds);
    }
}
