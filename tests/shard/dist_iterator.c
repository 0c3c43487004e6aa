/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/crc32c.h"
#include "pipeline/log.h"
#include "pipeline/ops/sources.h"
#include "tests/fault.h"
#include "tests/shard/steps.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct job {
    mr_dist_dataset *dd;
    mr_dist_iterator *it;
} job;

static job open_job(const char *expr, bool from_function, const mr_distribute_opts *o,
                    const mr_dist_iterator_opts *run)
{
    mr_status st;
    job j = {0};
    if (from_function)
        mr_ok(mr_distribute_from_text(expr, strlen(expr), o, &j.dd, &st), &st);
    else {
        mr_dataset *ds = mr_test_graph(expr);
        mr_ok(mr_distribute_dataset(ds, o, &j.dd, &st), &st);
        mr_dataset_unref(ds);
    }
    mr_ok(mr_dist_iterator_open(&j.it, j.dd, run, &st), &st);
    return j;
}

static void close_job(job *j)
{
    mr_dist_iterator_close(j->it);
    mr_dist_dataset_free(j->dd);
}

/* ---- fork ---- */

/* Returns how many uses of the parent's iterator are refused in a child, of 4; closes it there. */
static int refusals_in_child(mr_dist_iterator *it, const void *position, size_t size)
{
    mr_status st;
    mr_step s;
    void *bytes;
    size_t n;
    pid_t child = mr_test_fork();
    mr_check(child >= 0);
    if (child == 0) {
        alarm(60);
        int refused = mr_dist_iterator_next(it, NULL, &s, &st) == MR_FAILED_PRECONDITION;
        refused += mr_dist_iterator_save(it, &bytes, &n, &st) == MR_FAILED_PRECONDITION;
        refused += mr_dist_iterator_restore(it, position, size, &st) == MR_FAILED_PRECONDITION;
        refused += mr_dist_iterator_rewind(it, &st) == MR_FAILED_PRECONDITION;
        mr_dist_iterator_close(it);
        _exit(refused);
    }
    int status;
    mr_check(waitpid(child, &status, 0) == child);
    mr_check(WIFEXITED(status));
    return WEXITSTATUS(status);
}

MR_TEST(a_child_cannot_use_the_iterator_of_its_parent)
{
    mr_status st;
    mr_step s;
    void *position;
    size_t size;
    const mr_dist_iterator_opts run = {
        .run = {.positions = true, .has_threads = true, .threads = 2}};
    job j = open_job("range(8).map(x => x, num_parallel_calls=2).batch(4).prefetch(1)", false,
                     &(mr_distribute_opts){.num_workers = 2, .num_local_workers = 2}, &run);
    mr_ok(mr_dist_iterator_next(j.it, NULL, &s, &st), &st);
    mr_ok(mr_dist_iterator_save(j.it, &position, &size, &st), &st);
    mr_eq_i64(refusals_in_child(j.it, position, size), 4);
    mr_ok(mr_dist_iterator_next(j.it, NULL, &s, &st), &st);
    mr_code_is(mr_dist_iterator_next(j.it, NULL, &s, &st), MR_END, &st);
    mr_eq_i64(refusals_in_child(j.it, position, size), 4);
    mr_free(position);
    close_job(&j);
}

/* ---- the end ---- */

MR_TEST(end_is_sticky)
{
    mr_status st;
    mr_step s;
    static steps_text t;
    job j = open_job("range(4).batch(4)", false, &(mr_distribute_opts){.replicas = 2}, NULL);
    mr_code_is(steps_run(j.it, -1, &t, &st), MR_END, &st);
    mr_code_is(mr_dist_iterator_next(j.it, NULL, &s, &st), MR_END, &st);
    mr_eq_i64(mr_dist_iterator_step(j.it), 1);
    close_job(&j);
}

MR_TEST(optional_is_empty_at_the_end)
{
    mr_status st;
    mr_optional_step o;
    mr_step *s = NULL;
    job j = open_job("range(4).batch(4)", false, &(mr_distribute_opts){.replicas = 2}, NULL);
    mr_ok(mr_dist_iterator_get_next_as_optional(j.it, NULL, &o, &st), &st);
    mr_check(o.has_value);
    mr_ok(mr_optional_step_value(&o, &s, &st), &st);
    mr_eq_u64(s->n_replicas, 2);
    for (int i = 0; i < 2; i++) {
        mr_ok(mr_dist_iterator_get_next_as_optional(j.it, NULL, &o, &st), &st);
        mr_check(!o.has_value);
        mr_code_is(mr_optional_step_value(&o, &s, &st), MR_INVALID_ARGUMENT, &st);
    }
    close_job(&j);
}

MR_TEST(rewind_starts_the_next_pass)
{
    mr_status st;
    static steps_text t;
    job j = open_job("range(2 + input_pipeline_id).batch(1)", true,
                     &(mr_distribute_opts){.num_workers = 2},
                     &(mr_dist_iterator_opts){.run = {.positions = true}});
    for (unsigned char pass = 0; pass < 3; pass++) {
        unsigned char passes[8] = {pass};
        void *bytes = NULL;
        size_t size = 0;
        mr_ok(mr_dist_iterator_save(j.it, &bytes, &size, &st), &st);
        mr_check(size > 24);
        mr_eq_mem((char *)bytes + 16, passes, sizeof passes);
        mr_free(bytes);
        t.n = 0;
        mr_code_is(steps_run(j.it, -1, &t, &st), MR_END, &st);
        mr_eq_str(t.v, "[0]\n[1]\n_[]\n");
        mr_ok(mr_dist_iterator_rewind(j.it, &st), &st);
    }
    close_job(&j);
}

/* ---- agreement ---- */

typedef struct counted {
    int64_t calls, others;
} counted;

static mr_code add_others(void *ctx, int64_t n_local, int64_t *n_global, mr_status *st)
{
    counted *c = ctx;
    (void)st;
    *n_global = n_local + (c->calls++ < c->others ? 1 : 0);
    return MR_OK;
}

MR_TEST(callback_decides_how_many_steps_are_taken)
{
    mr_status st;
    static steps_text t;
    counted c = {0, 4};
    job j =
        open_job("range(3).batch(2)", true, &(mr_distribute_opts){.num_workers = 2, .replicas = 2},
                 &(mr_dist_iterator_opts){.agree = add_others, .agree_ctx = &c});
    mr_code_is(steps_run(j.it, -1, &t, &st), MR_END, &st);
    mr_eq_str(t.v, "[0,1] [2]\n_[] _[]\n_[] _[]\n_[] _[]\n");
    mr_eq_i64(c.calls, 5);
    close_job(&j);
}

MR_TEST(data_and_off_agree_without_asking)
{
    static const mr_shard_policy policies[] = {MR_SHARD_DATA, MR_SHARD_OFF};
    for (size_t i = 0; i < 2; i++) {
        mr_status st;
        static steps_text t;
        counted c = {0, 100};
        job j = open_job(
            "range(8).batch(4)", false,
            &(mr_distribute_opts){.num_workers = 2, .policy = policies[i], .has_policy = true},
            &(mr_dist_iterator_opts){.agree = add_others, .agree_ctx = &c});
        mr_code_is(steps_run(j.it, -1, &t, &st), MR_END, &st);
        mr_eq_i64(mr_dist_iterator_step(j.it), policies[i] == MR_SHARD_DATA ? 2 : 4);
        mr_eq_i64(c.calls, 0);
        close_job(&j);
    }
}

static char logged[2048];
static void keep_warning(void *ctx, mr_log_level level, const char *message)
{
    (void)ctx;
    if (level >= MR_LOG_WARNING && strlen(message) < sizeof logged)
        strcpy(logged, message);
}

MR_TEST(error_in_a_peer_ends_its_part_and_is_logged)
{
    mr_status st;
    static steps_text t;
    mr_log_set(keep_warning, NULL, MR_LOG_WARNING);
    job j = open_job("range(1 + 5 * input_pipeline_id).map(x => 10 // (x - 3) if x > 0 else x)"
                     ".batch(1)",
                     true, &(mr_distribute_opts){.num_workers = 2}, NULL);
    mr_code_is(steps_run(j.it, -1, &t, &st), MR_END, &st);
    mr_eq_str(t.v, "[0]\n_[]\n_[]\n");
    mr_has_str(logged, "worker 1");
    mr_has_str(logged, "step 3");
    mr_log_set(NULL, NULL, MR_LOG_ERROR);
    close_job(&j);
}

MR_TEST(own_error_is_told_once_and_nothing_is_lost)
{
    mr_status st;
    mr_step s;
    static steps_text t;
    job j = open_job("range(6).map(x => 10 // (x - 1)).batch(1)", true,
                     &(mr_distribute_opts){.replicas = 2},
                     &(mr_dist_iterator_opts){.run = {.has_threads = true, .positions = true}});
    void *bytes = NULL;
    size_t size = 0;
    mr_code rc = mr_dist_iterator_next(j.it, NULL, &s, &st);
    mr_check(rc < 0);
    mr_code_is(mr_dist_iterator_save(j.it, &bytes, &size, &st), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "half way");
    mr_code_is(steps_run(j.it, -1, &t, &st), MR_END, &st);
    mr_eq_str(t.v, "[-10] [10]\n[5] [3]\n[2] _[]\n");
    close_job(&j);
}

/* A program finds columns by their names in every step, also where a replica has no data. */
MR_TEST(a_replica_without_data_has_columns_by_their_names)
{
    mr_status st;
    mr_step s;
    job j = open_job("range(3).map(x => {\"a\": x, \"b\": [x, x]}).batch(1)", true,
                     &(mr_distribute_opts){.replicas = 2}, NULL);
    for (int step = 0; step < 2; step++) {
        mr_ok(mr_dist_iterator_next(j.it, NULL, &s, &st), &st);
        mr_check(s.has_data[1] == (step == 0));
        for (size_t r = 0; r < s.n_replicas; r++) {
            const mr_block *b = &s.replicas[r];
            mr_check(mr_block_column(b, "a") == &b->columns[0]);
            mr_check(mr_block_column(b, "b") == &b->columns[1]);
        }
    }
    mr_code_is(mr_dist_iterator_next(j.it, NULL, &s, &st), MR_END, &st);
    close_job(&j);
}

static void *cancel_soon(void *it)
{
    usleep(20000);
    mr_dist_iterator_cancel(it);
    return NULL;
}

MR_TEST(cancel_ends_the_wait_for_a_peer)
{
    mr_status st;
    mr_step s;
    pthread_t thread;
    job j = open_job("range(1).repeat(1 if input_pipeline_id == 0 else -1)"
                     ".filter(x => x < 1 - input_pipeline_id).batch(1)",
                     true, &(mr_distribute_opts){.num_workers = 2}, NULL);
    mr_ok(mr_dist_iterator_next(j.it, NULL, &s, &st), &st);
    mr_check(pthread_create(&thread, NULL, cancel_soon, j.it) == 0);
    mr_code_is(mr_dist_iterator_next(j.it, NULL, &s, &st), MR_CANCELLED, &st);
    pthread_join(thread, NULL);
    close_job(&j);
}

/* The n_local replicas' single numbers of a step. */
static void check_step(mr_dist_iterator *it, const int64_t *numbers, size_t n)
{
    mr_status st;
    mr_step s;
    mr_ok(mr_dist_iterator_next(it, NULL, &s, &st), &st);
    mr_eq_u64(s.n_replicas, n);
    for (size_t i = 0; i < n; i++)
        mr_eq_i64(*(const int64_t *)s.replicas[i].columns[0].data, numbers[i]);
}

/* Replica 0 has its batch when the wait for that of replica 1 is cancelled. */
static mr_code wait_for_it(void *ctx, void *pass, size_t want, mr_block *out, mr_status *st)
{
    job *j = ctx;
    static int64_t at;
    (void)pass, (void)want;
    if (at == 1) {
        mr_dist_iterator_cancel(j->it);
        return mr_fail(st, MR_CANCELLED, "a wait that is cancelled");
    }
    MR_TRY(mr_block_prepare(out, 1, st));
    MR_TRY(mr_array_alloc(&out->columns[0], MR_INT64, 1, (int64_t[]){1}, 1, st));
    *(int64_t *)out->columns[0].data = at++;
    out->rows = 1;
    return MR_OK;
}

static mr_code waiting_input(void *ctx, const mr_input_context *c, mr_dataset **out, mr_status *st)
{
    mr_spec *one = mr_spec_tensor(MR_INT64, 1, (int64_t[]){1});
    (void)c, (void)st;
    *out = mr_from_generator(&(mr_generator){.ctx = ctx, .next = wait_for_it}, one);
    mr_spec_unref(one);
    return MR_OK;
}

static mr_code coded_input(void *ctx, const mr_input_context *c, mr_dataset **out, mr_status *st)
{
    (void)c, (void)out, (void)st;
    return *(mr_code *)ctx;
}

MR_TEST(what_an_input_function_returns_is_an_error_with_a_message)
{
    static mr_code given[] = {MR_END, (mr_code)9, MR_DATA_LOSS};
    for (size_t i = 0; i < 3; i++) {
        mr_dist_dataset *dd = NULL;
        mr_status st;
        mr_code_is(mr_distribute_from_function(coded_input, &given[i], NULL, &dd, &st),
                   given[i] < 0 ? given[i] : MR_INTERNAL, &st);
        mr_has_str(st.message, given[i] < 0 ? "without a message" : "expected MR_OK");
        mr_check(!dd);
    }
}

MR_TEST(after_a_cancelled_wait_it_resumes_within_the_step)
{
    mr_status st;
    mr_step s;
    job j = {0};
    const mr_distribute_opts o = {.replicas = 2, .num_workers = 2, .num_local_workers = 2};
    const mr_dist_iterator_opts run = {
        .run = {.positions = true, .has_threads = true, .threads = 2}};
    mr_dataset *ds = mr_test_graph("range(64).prefetch(1).batch(4)");
    mr_ok(mr_distribute_dataset(ds, &o, &j.dd, &st), &st);
    mr_ok(mr_dist_iterator_open(&j.it, j.dd, &run, &st), &st);
    check_step(j.it, (int64_t[]){0, 2, 1, 3}, 4);
    mr_dist_iterator_cancel(j.it);
    mr_code_is(mr_dist_iterator_next(j.it, NULL, &s, &st), MR_CANCELLED, &st);
    mr_ok(mr_dist_iterator_resume(j.it, &st), &st);
    check_step(j.it, (int64_t[]){4, 6, 5, 7}, 4);
    close_job(&j);
    mr_dataset_unref(ds);
    j = (job){0};
    mr_ok(mr_distribute_from_function(waiting_input, &j, &(mr_distribute_opts){.replicas = 2},
                                      &j.dd, &st),
          &st);
    mr_ok(
        mr_dist_iterator_open(
            &j.it, j.dd, &(mr_dist_iterator_opts){.run = {.has_threads = true, .threads = 0}}, &st),
        &st);
    mr_code_is(mr_dist_iterator_next(j.it, NULL, &s, &st), MR_CANCELLED, &st);
    /* Without positions there is no way back. */
    mr_code_is(mr_dist_iterator_resume(j.it, &st), MR_FAILED_PRECONDITION, &st);
    close_job(&j);
}

MR_TEST(an_iterator_that_rests_has_no_threads_and_goes_on)
{
    mr_status st;
    mr_step s;
    void *position;
    size_t size;
    const mr_dist_iterator_opts run = {
        .run = {.positions = true, .has_threads = true, .threads = 2}};
    int before = mr_test_threads_at_first();
    job j = open_job("range(16).map(x => x, num_parallel_calls=2).batch(4).prefetch(1)", false,
                     &(mr_distribute_opts){.num_workers = 2, .num_local_workers = 2}, &run);
    check_step(j.it, (int64_t[]){0, 2}, 2);
    mr_check(mr_test_threads() > before);
    mr_ok(mr_dist_iterator_save(j.it, &position, &size, &st), &st);
    for (int i = 0; i < 2; i++)
        mr_ok(mr_dist_iterator_rest(j.it, &st), &st);
    mr_await(mr_test_threads() == before);
    mr_code_is(mr_dist_iterator_next(j.it, NULL, &s, &st), MR_FAILED_PRECONDITION, &st);
    mr_ok(mr_dist_iterator_restore(j.it, position, size, &st), &st);
    check_step(j.it, (int64_t[]){4, 6}, 2);
    mr_check(mr_test_threads() > before);
    mr_dist_iterator_cancel(j.it);
    mr_ok(mr_dist_iterator_rest(j.it, &st), &st);
    mr_ok(mr_dist_iterator_rewind(j.it, &st), &st);
    check_step(j.it, (int64_t[]){0, 2}, 2);
    mr_free(position);
    close_job(&j);
}

MR_TEST(threads_and_blocks_change_nothing)
{
    static steps_text one, other;
    static const char expr[] = "range(50).shuffle(7, seed=1).map(x => x * 2, num_parallel_calls=4)"
                               ".prefetch(2).batch(8)";
    const mr_distribute_opts o = {.num_workers = 2, .num_local_workers = 2, .replicas = 2};
    mr_status st;
    for (int64_t rows = 1; rows < 5; rows++)
        for (int64_t threads = 0; threads < 5; threads += 2) {
            steps_text *t = rows == 1 && threads == 0 ? &one : &other;
            t->n = 0;
            job j =
                open_job(expr, false, &o,
                         &(mr_dist_iterator_opts){
                             .run = {.has_threads = true, .threads = threads, .block_rows = rows}});
            mr_code_is(steps_run(j.it, -1, t, &st), MR_END, &st);
            mr_eq_i64(mr_dist_iterator_step(j.it), 7);
            if (t == &other)
                mr_eq_str(other.v, one.v);
            close_job(&j);
        }
}

/* ---- positions ---- */

static void check_positions(const char *expr, bool from_function, const mr_distribute_opts *o)
{
    const mr_dist_iterator_opts run = {.run = {.positions = true}};
    static steps_text whole, part;
    mr_status st;
    job j = open_job(expr, from_function, o, NULL);
    whole.n = 0;
    mr_code_is(steps_run(j.it, -1, &whole, &st), MR_END, &st);
    int64_t n = mr_dist_iterator_step(j.it);
    close_job(&j);
    for (int64_t at = 0; at <= n; at++) {
        void *bytes = NULL;
        size_t size = 0;
        mr_test_context("%s after %" PRId64 " steps", expr, at);
        part.n = 0;
        j = open_job(expr, from_function, o, &run);
        (void)!steps_run(j.it, at, &part, &st);
        mr_ok(mr_dist_iterator_save(j.it, &bytes, &size, &st), &st);
        close_job(&j);
        j = open_job(expr, from_function, o, &run);
        mr_ok(mr_dist_iterator_restore(j.it, bytes, size, &st), &st);
        mr_eq_i64(mr_dist_iterator_step(j.it), at);
        mr_code_is(steps_run(j.it, -1, &part, &st), MR_END, &st);
        mr_eq_str(part.v, whole.v);
        close_job(&j);
        mr_free(bytes);
    }
}

MR_TEST(every_step_can_be_saved_and_restored)
{
    check_positions("range(22).batch(8)", false, &(mr_distribute_opts){.replicas = 3});
    check_positions("range(22).shuffle(5, seed=3).batch(8)", false,
                    &(mr_distribute_opts){.num_workers = 2, .worker = 1, .replicas = 2});
    check_positions(
        "range(22).batch(8)", false,
        &(mr_distribute_opts){
            .num_workers = 2, .num_local_workers = 2, .policy = MR_SHARD_OFF, .has_policy = true});
    check_positions("range(3 + 4 * input_pipeline_id).batch(1)", true,
                    &(mr_distribute_opts){.num_workers = 2, .replicas = 2});
}

MR_TEST(positions_of_other_jobs_are_refused)
{
    const mr_dist_iterator_opts run = {.run = {.positions = true}};
    mr_status st;
    void *bytes = NULL;
    size_t size = 0;
    job j = open_job("range(22).batch(8)", false, &(mr_distribute_opts){.replicas = 2}, &run);
    mr_ok(mr_dist_iterator_save(j.it, &bytes, &size, &st), &st);
    close_job(&j);

    j = open_job("range(22).batch(8)", false, &(mr_distribute_opts){.replicas = 3}, &run);
    mr_code_is(mr_dist_iterator_restore(j.it, bytes, size, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "2 replicas");
    close_job(&j);

    j = open_job("range(23).batch(8)", false, &(mr_distribute_opts){.replicas = 2}, &run);
    mr_code_is(mr_dist_iterator_restore(j.it, bytes, size, &st), MR_INVALID_ARGUMENT, &st);
    close_job(&j);

    j = open_job("range(22).batch(8)", false, &(mr_distribute_opts){.replicas = 2}, &run);
    for (size_t i = 0; i < size; i++) {
        mr_code_is(mr_dist_iterator_restore(j.it, bytes, i, &st), MR_INVALID_ARGUMENT, &st);
        ((unsigned char *)bytes)[i] ^= 0x20;
        mr_code_is(mr_dist_iterator_restore(j.it, bytes, size, &st), MR_INVALID_ARGUMENT, &st);
        ((unsigned char *)bytes)[i] ^= 0x20;
    }
    mr_ok(mr_dist_iterator_restore(j.it, bytes, size, &st), &st);
    unsigned char *longer = mr_malloc(size + 1); /* its checksum is right */
    mr_check(longer != NULL);
    memcpy(longer, bytes, size);
    longer[size] = 0;
    uint32_t crc = mr_crc32c(longer + 8, size + 1 - 8);
    for (int i = 0; i < 4; i++)
        longer[4 + i] = (unsigned char)(crc >> 8 * i);
    mr_code_is(mr_dist_iterator_restore(j.it, longer, size + 1, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "bytes after its end");
    mr_free(longer);
    close_job(&j);
    mr_free(bytes);
}

MR_TEST(positions_of_another_seed_are_refused_where_it_is_drawn_from)
{
    static const struct {
        const char *expr;
        mr_code with_seed_2, without;
    } cases[] = {{"range(22).shuffle(5).batch(8)", MR_INVALID_ARGUMENT, MR_INVALID_ARGUMENT},
                 {"range(22).shuffle(5, seed=3).batch(8)", MR_OK, MR_OK},
                 {"range(22).batch(8)", MR_OK, MR_OK}};
    const mr_dist_iterator_opts run = {.run = {.positions = true}};
    mr_status st;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        void *bytes = NULL;
        size_t size = 0;
        mr_distribute_opts o = {.replicas = 2, .has_seed = true, .seed = 1};
        mr_test_context("%s", cases[i].expr);
        job j = open_job(cases[i].expr, false, &o, &run);
        mr_ok(mr_dist_iterator_save(j.it, &bytes, &size, &st), &st);
        mr_ok(mr_dist_iterator_restore(j.it, bytes, size, &st), &st);
        close_job(&j);
        o.seed = 2;
        j = open_job(cases[i].expr, false, &o, &run);
        mr_code_is(mr_dist_iterator_restore(j.it, bytes, size, &st), cases[i].with_seed_2, &st);
        if (cases[i].with_seed_2 != MR_OK)
            mr_has_str(st.message, "seed 1");
        close_job(&j);
        o.has_seed = false;
        j = open_job(cases[i].expr, false, &o, &run);
        mr_code_is(mr_dist_iterator_restore(j.it, bytes, size, &st), cases[i].without, &st);
        close_job(&j);
        mr_free(bytes);
    }
}

/* ---- slots ---- */

MR_TEST(slots_are_filled_or_left_alone)
{
    mr_status st;
    mr_step s;
    int64_t slots[2][8];
    const mr_segment segments[] = {{slots[0], sizeof slots[0]}, {slots[1], sizeof slots[1]}};
    const mr_destination destination = {1, 2, segments};
    job j = open_job("range(22).batch(16).prefetch(3)", false,
                     &(mr_distribute_opts){.replicas = 2, .owns_slots = true}, NULL);
    /* replica_slices' own prefetch of 2 is absorbed, the user's is below it */
    mr_eq_i64(mr_dist_dataset_absorbed_prefetch(j.dd), 2);
    for (int64_t first = 0, rows = 8; first < 22; first += 16, rows = 3) {
        mr_ok(mr_dist_iterator_next(j.it, &destination, &s, &st), &st);
        for (size_t r = 0; r < 2; r++) {
            const mr_array *a = &s.replicas[r].columns[0];
            const int64_t *v = a->storage == MR_PLACED ? slots[r] : a->data;
            mr_eq_i64(a->shape[0], rows);
            for (int64_t i = 0; i < rows; i++)
                mr_eq_i64(v[i], first + (int64_t)r * rows + i);
        }
    }
    close_job(&j);
}

/* ---- faults ---- */

MR_TEST(allocation_failures_are_reported)
{
    static const char *const exprs[] = {"range(20).shuffle(3).batch(8)",
                                        "range(3 + 3 * input_pipeline_id).batch(1)"};
    for (int f = 0; f < 2; f++)
        mr_fault_each_allocation(n)
        {
            mr_status st;
            mr_dataset *ds = NULL;
            mr_dist_dataset *dd = NULL;
            mr_dist_iterator *it = NULL;
            mr_step s;
            void *bytes = NULL;
            size_t size = 0;
            const mr_distribute_opts o = {.num_workers = 2, .replicas = 2};
            const mr_dist_iterator_opts run = {.run = {.has_threads = true, .positions = true}};
            mr_code rc;
            if (f == 0) {
                rc = mr_fault_expect(
                    mr_dataset_from_text(exprs[0], strlen(exprs[0]), NULL, &ds, &st), &st);
                if (rc == MR_OK)
                    rc = mr_fault_expect(mr_distribute_dataset(ds, &o, &dd, &st), &st);
            } else
                rc = mr_fault_expect(
                    mr_distribute_from_text(exprs[1], strlen(exprs[1]), &o, &dd, &st), &st);
            if (rc == MR_OK)
                rc = mr_fault_expect(mr_dist_iterator_open(&it, dd, &run, &st), &st);
            while (rc == MR_OK)
                rc = mr_fault_expect(mr_dist_iterator_next(it, NULL, &s, &st), &st);
            if (rc == MR_END)
                rc = mr_fault_expect(mr_dist_iterator_save(it, &bytes, &size, &st), &st);
            if (rc == MR_OK)
                rc = mr_fault_expect(mr_dist_iterator_restore(it, bytes, size, &st), &st);
            mr_free(bytes);
            mr_dist_iterator_close(it);
            mr_dist_dataset_free(dd);
            mr_dataset_unref(ds);
        }
}
