/* SPDX-License-Identifier: Apache-2.0 */
/* Loops of one's own over parameter servers: real processes, forked from the test. */
#include "trainer/servers/coordinator.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "shard/distribute/input_context.h"
#include "tests/harness.h"
#include "trainer/servers/parameter_server.h"

enum { MOST = 4, STEPS = 24 };

static mr_status st;

/* ---- steps that workers know: registered before they are forked ---- */

/* The loss of the batch, without a backward pass. */
static mr_code look(mr_replica *r, const mr_worker_step *w, mr_status *status)
{
    mr_array y;
    MR_TRY(mr_model_forward(w->model, r, &w->columns[0], &(mr_forward_opts){0}, &y, status));
    mr_loss_opts how = {.scale = 1, .sum = w->value};
    return mr_loss_compute(w->loss, r, &w->columns[1], &y, &how, NULL, NULL, status);
}

/* The training step, with the gradients multiplied by ctx. */
static mr_code scaled(mr_replica *r, const mr_worker_step *w, mr_status *status)
{
    mr_array y;
    const mr_forward_opts train = {.training = true};
    MR_TRY(mr_model_forward(w->model, r, &w->columns[0], &train, &y, status));
    mr_loss_opts how = {.scale = atof(w->ctx) / (double)w->rows, .sum = w->value};
    MR_TRY(mr_loss_compute(w->loss, r, &w->columns[1], &y, &how, NULL,
                           mr_model_output_gradient(w->model, r), status));
    return mr_model_backward(w->model, r, status);
}

static mr_code say(mr_replica *r, const mr_worker_step *w, mr_status *status)
{
    static double said;
    said = (double)(w->n_columns * 1000 + (size_t)w->rows * 10 + strlen(w->ctx));
    return mr_stream_copy(mr_replica_stream(r), w->value, &said, sizeof said, status);
}

static mr_code fail(mr_replica *r, const mr_worker_step *w, mr_status *status)
{
    (void)r;
    return mr_fail(status, MR_INVALID_ARGUMENT, "step %d is not to my taste", (int)w->step);
}

static mr_code die(mr_replica *r, const mr_worker_step *w, mr_status *status)
{
    (void)r, (void)status;
    if (access(w->ctx, F_OK) == 0) /* it died there before */
        return MR_OK;
    fclose(fopen(w->ctx, "w"));
    raise(SIGKILL);
    return MR_OK;
}

#define STEP(NAME)                                                                                 \
    {                                                                                              \
        .is = {.abi = MR_ABI_VERSION, .name = #NAME, .doc = "D.", .example = "1"}, .run = NAME     \
    }
static const mr_worker_step_desc named[] = {STEP(look), STEP(scaled), STEP(say), STEP(fail),
                                            STEP(die)};

/* ---- a cluster of processes ---- */

typedef struct job {
    mr_cluster cluster;
    pid_t pids[MOST];
    size_t n;
    mr_strategy *s;
    mr_model *m;
    mr_loss *loss;
    mr_optimizer *o;
    mr_coordinator *c;
} job;

static void ready(void *ctx, const char *address)
{
    FILE *to = ctx;
    fprintf(to, "%s\n", address);
    fclose(to);
}

static void serve(mr_task_type type, int to)
{
    mr_cluster cluster = {0};
    mr_server_opts o = {.cluster = &cluster, .listen = "127.0.0.1:0", .ready = ready};
    o.ctx = fdopen(to, "w");
    mr_code rc = mr_cluster_add(&cluster, type, "127.0.0.1:1", &st);
    if (rc == MR_OK)
        rc = mr_cluster_set_task(&cluster, type, 0, &st);
    if (rc == MR_OK)
        rc = mr_server_run(&o, &st);
    _exit(rc != MR_OK);
}

static void start(job *j, mr_task_type type)
{
    int ends[2];
    char address[128] = "";
    mr_check(pipe(ends) == 0);
    pid_t pid = fork();
    mr_check(pid >= 0);
    if (pid == 0)
        serve(type, ends[1]);
    close(ends[1]);
    FILE *from = fdopen(ends[0], "r");
    mr_check(fgets(address, sizeof address, from) != NULL);
    fclose(from);
    address[strcspn(address, "\n")] = '\0';
    mr_ok(mr_cluster_add(&j->cluster, type, address, &st), &st);
    j->pids[j->n++] = pid;
}

static void make_parts(job *j)
{
    mr_ok(mr_model_parse(&j->m, "input(2).dense(8, activation=\"relu\").dense(1)", &st), &st);
    mr_ok(mr_loss_parse(&j->loss, "mse", &st), &st);
    mr_ok(mr_optimizer_parse(&j->o, "sgd(0.05)", &st), &st);
}

static const mr_fit_opts opts = {.seed = 3, .steps = STEPS};

static void open_job(job *j, size_t n_ps, size_t n_workers)
{
    static size_t registered;
    *j = (job){0};
    for (; registered < sizeof named / sizeof *named; registered++)
        mr_ok(mr_worker_step_register(&named[registered], &st), &st);
    for (size_t i = 0; i < n_ps; i++)
        start(j, MR_TASK_PS);
    for (size_t i = 0; i < n_workers; i++)
        start(j, MR_TASK_WORKER);
    const mr_workers_opts workers = {.cluster = &j->cluster, .connect_timeout_s = 600};
    mr_ok(mr_strategy_parameter_server(&j->s, NULL, &workers, &st), &st);
    make_parts(j);
    mr_ok(mr_coordinator_open(&j->c, j->s, j->m, j->loss, j->o, &opts, &st), &st);
}

static void free_parts(job *j)
{
    mr_model_free(j->m);
    mr_optimizer_free(j->o);
    mr_loss_free(j->loss);
    mr_strategy_free(j->s);
    mr_cluster_reset(&j->cluster);
}

/* failed: the servers wait for another start. */
static void close_job(job *j, bool failed)
{
    mr_coordinator_close(j->c);
    free_parts(j);
    for (size_t i = 0; i < j->n; i++) {
        int status;
        if (failed)
            kill(j->pids[i], SIGKILL);
        mr_check(waitpid(j->pids[i], &status, 0) == j->pids[i]);
        mr_check(failed || status == 0);
    }
}

static mr_code make(void *ctx, const mr_input_context *in, mr_dataset **out, mr_status *status)
{
    static const char text[] = "range(90).map(i => ([cast(i % 3, \"float32\"), cast(i % 5, "
                               "\"float32\")], [cast(i % 7, \"float32\") / 7.0])).batch(9)";
    int64_t *asked = ctx;
    if (asked)
        asked[in->input_pipeline_id] = in->num_input_pipelines * 10 + in->num_replicas_in_sync;
    return mr_dataset_from_text(text, strlen(text), NULL, out, status);
}

static void read_first(mr_model *m, float *out)
{
    mr_ok(mr_variable_read(mr_model_variable(m, 0), out, &st), &st);
}

/* ---- what mr_fit learns in as many steps, on this process alone ---- */

static void fit_alone(float *kernel, double *last)
{
    job j = {0};
    mr_dataset *ds;
    mr_fit_result result;
    mr_ok(mr_strategy_one_device(&j.s, NULL, &st), &st);
    make_parts(&j);
    mr_ok(make(NULL, NULL, &ds, &st), &st);
    mr_ok(mr_fit(j.s, j.m, ds, j.loss, j.o, &opts, &result, &st), &st);
    mr_dataset_unref(ds);
    read_first(j.m, kernel);
    *last = result.loss; /* of the last epoch: steps 21 to 24 */
    free_parts(&j);
}

MR_TEST(one_worker_makes_the_steps_of_fit)
{
    job j;
    double loss[STEPS], last, mean = 0;
    float want[16], have[16];
    bool done = false;
    open_job(&j, 2, 1);
    mr_ok(mr_coordinator_create_per_worker_dataset(j.c, make, NULL, &st), &st);
    for (int i = 0; i < STEPS; i++)
        mr_ok(mr_coordinator_schedule(j.c, NULL, NULL, &loss[i], &st), &st);
    mr_ok(mr_coordinator_join(j.c, &st), &st);
    mr_ok(mr_coordinator_done(j.c, &done, &st), &st);
    mr_check(done);
    fit_alone(want, &last);
    read_first(j.m, have);
    for (int i = 0; i < 16; i++)
        mr_eq_f64((double)have[i], (double)want[i], 1e-5);
    for (int i = 20; i < STEPS; i++)
        mean += loss[i] / 4;
    mr_eq_f64(mean, last, 1e-5);
    mr_eq_i64(mr_optimizer_iterations(j.o), STEPS);
    close_job(&j, false);
}

MR_TEST(named_steps_compute_what_they_were_registered_for)
{
    job j;
    double before, step, after, said, same;
    float kernel[16], still[16];
    open_job(&j, 1, 1);
    mr_ok(mr_coordinator_create_per_worker_dataset(j.c, make, NULL, &st), &st);
    mr_ok(mr_coordinator_schedule(j.c, "say", "abc", &said, &st), &st);
    mr_ok(mr_coordinator_fetch(j.c, &said, &st), &st);
    mr_eq_f64(said, 2093, 0); /* two columns, nine rows, three letters */
    mr_ok(mr_coordinator_join(j.c, &st), &st);
    read_first(j.m, kernel);
    mr_ok(mr_coordinator_schedule(j.c, "look", NULL, &before, &st), &st);
    mr_ok(mr_coordinator_schedule(j.c, "look", NULL, &same, &st), &st);
    mr_ok(mr_coordinator_join(j.c, &st), &st);
    read_first(j.m, still);
    mr_check(memcmp(kernel, still, sizeof kernel) == 0); /* nothing went backward */
    mr_check(before > 0 && same > 0);
    mr_ok(mr_coordinator_schedule(j.c, "scaled", "0.5", &step, &st), &st);
    mr_ok(mr_coordinator_schedule(j.c, "look", "", &after, &st), &st);
    mr_ok(mr_coordinator_fetch(j.c, &after, &st), &st);
    mr_ok(mr_coordinator_join(j.c, &st), &st);
    mr_eq_i64(mr_optimizer_iterations(j.o), 1);
    read_first(j.m, still);
    mr_check(memcmp(kernel, still, sizeof kernel) != 0);
    close_job(&j, false);
}

MR_TEST(a_step_of_no_name_that_workers_know_ends_the_coordinator)
{
    job j;
    double value = -1;
    bool done;
    open_job(&j, 1, 1);
    mr_code_is(mr_coordinator_schedule(j.c, NULL, NULL, &value, &st), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "create_per_worker_dataset");
    mr_ok(mr_coordinator_create_per_worker_dataset(j.c, make, NULL, &st), &st);
    mr_ok(mr_coordinator_schedule(j.c, "nowhere", NULL, &value, &st), &st);
    mr_code_is(mr_coordinator_join(j.c, &st), MR_NOT_FOUND, &st);
    mr_has_str(st.message, "'nowhere'");
    mr_has_str(st.message, "worker 0");
    mr_code_is(mr_coordinator_schedule(j.c, NULL, NULL, &value, &st), MR_NOT_FOUND, &st);
    mr_code_is(mr_coordinator_fetch(j.c, &value, &st), MR_NOT_FOUND, &st);
    mr_code_is(mr_coordinator_done(j.c, &done, &st), MR_NOT_FOUND, &st);
    mr_code_is(mr_coordinator_create_per_worker_dataset(j.c, make, NULL, &st), MR_NOT_FOUND, &st);
    mr_eq_f64(value, -1, 0);
    close_job(&j, true);
}

MR_TEST(what_a_step_fails_of_is_said)
{
    job j;
    open_job(&j, 1, 2);
    mr_ok(mr_coordinator_create_per_worker_dataset(j.c, make, NULL, &st), &st);
    mr_code_is(mr_coordinator_schedule(j.c, "fail", "\xff", NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "UTF-8");
    char *large = calloc(1, (2 << 20) + 1);
    memset(large, 'a', 2 << 20);
    mr_code_is(mr_coordinator_schedule(j.c, "fail", large, NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "2097152 bytes");
    mr_code_is(mr_coordinator_schedule(j.c, "\xc0\x80", NULL, NULL, &st), MR_INVALID_ARGUMENT, &st);
    free(large);
    /* These calls alone were refused. */
    mr_ok(mr_coordinator_schedule(j.c, NULL, NULL, NULL, &st), &st);
    mr_ok(mr_coordinator_join(j.c, &st), &st);
    mr_ok(mr_coordinator_schedule(j.c, "fail", NULL, NULL, &st), &st);
    mr_code_is(mr_coordinator_join(j.c, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "step 2 is not to my taste");
    close_job(&j, true);
}

MR_TEST(every_worker_has_a_dataset_of_its_own_and_another_may_follow)
{
    job j;
    int64_t asked[2] = {0};
    double loss[STEPS];
    open_job(&j, 1, 2);
    for (int pass = 0; pass < 2; pass++) {
        asked[0] = asked[1] = 0;
        mr_ok(mr_coordinator_create_per_worker_dataset(j.c, make, asked, &st), &st);
        for (int i = 0; i < STEPS; i++)
            mr_ok(mr_coordinator_schedule(j.c, NULL, NULL, &loss[i], &st), &st);
        mr_ok(mr_coordinator_join(j.c, &st), &st);
        mr_eq_i64(asked[0], 21); /* two pipelines, one replica */
        mr_eq_i64(asked[1], 21);
        mr_eq_i64(mr_optimizer_iterations(j.o), (pass + 1) * STEPS);
    }
    close_job(&j, false);
}

MR_TEST(a_worker_that_dies_is_replaced)
{
    job j;
    double loss[STEPS];
    open_job(&j, 1, 2);
    mr_ok(mr_coordinator_create_per_worker_dataset(j.c, make, NULL, &st), &st);
    for (int i = 0; i < STEPS; i++) {
        loss[i] = -1;
        mr_ok(mr_coordinator_schedule(j.c, i == 5 ? "die" : NULL, mr_test_path("died"), &loss[i],
                                      &st),
              &st);
    }
    mr_ok(mr_coordinator_join(j.c, &st), &st);
    for (int i = 0; i < STEPS; i++)
        mr_check(loss[i] >= 0);
    mr_check(access(mr_test_path("died"), F_OK) == 0);
    mr_strategy_abandon(j.s, &st); /* does not wait for the dead worker to learn of the end */
    close_job(&j, true);
}

MR_TEST(a_lost_parameter_server_is_named)
{
    job j;
    mr_code rc = MR_OK;
    open_job(&j, 2, 1);
    mr_ok(mr_coordinator_create_per_worker_dataset(j.c, make, NULL, &st), &st);
    mr_ok(mr_coordinator_schedule(j.c, NULL, NULL, NULL, &st), &st);
    mr_ok(mr_coordinator_join(j.c, &st), &st);
    kill(j.pids[1], SIGKILL);
    while (rc == MR_OK)
        rc = mr_coordinator_schedule(j.c, NULL, NULL, NULL, &st);
    mr_code_is(rc, MR_UNAVAILABLE, &st);
    mr_has_str(st.message, "parameter server 1");
    close_job(&j, true);
}

MR_TEST(a_coordinator_needs_parameter_servers)
{
    job j = {0};
    mr_ok(mr_strategy_one_device(&j.s, NULL, &st), &st);
    make_parts(&j);
    mr_code_is(mr_coordinator_open(&j.c, j.s, j.m, j.loss, j.o, NULL, &st), MR_FAILED_PRECONDITION,
               &st);
    mr_has_str(st.message, "one_device");
    mr_coordinator_close(NULL);
    free_parts(&j);
}

MR_TEST(steps_with_parameters_are_refused)
{
    static const mr_param table[] = {{0}};
    mr_worker_step_desc d = STEP(look);
    d.is.params = table;
    mr_code_is(mr_worker_step_register(&d, &st), MR_INVALID_ARGUMENT, &st);
    d.is.params = NULL;
    d.run = NULL;
    mr_code_is(mr_worker_step_register(&d, &st), MR_INVALID_ARGUMENT, &st);
    d.run = look;
    mr_ok(mr_worker_step_register(&d, &st), &st);
    mr_code_is(mr_worker_step_register(&d, &st), MR_ALREADY_EXISTS, &st);
}
