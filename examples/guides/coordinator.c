/* SPDX-License-Identifier: Apache-2.0 */
/* A custom loop over a parameter server and two workers, which the program starts itself; half of
 * the steps are custom steps, which scale the gradients of their batch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <millrace/millrace.h>
#include <millrace/millrace-trainer.h>

/* Runs on a worker; ctx is the value that the coordinator sent with the step. */
static mr_code scaled(mr_replica *r, const mr_worker_step *w, mr_status *st)
{
    mr_array y;
    mr_loss_opts how = {.scale = atof(w->ctx) / (double)w->rows, .sum = w->value};
    MR_TRY(mr_model_forward(w->model, r, w->columns, &(mr_forward_opts){.training = true}, &y, st));
    MR_TRY(mr_model_loss(w->model, r, 0, w->loss, w->columns + 1, &how, NULL, st));
    return mr_model_backward(w->model, r, st); /* the gradients go to the server */
}

static const mr_worker_step_desc step = {
    {MR_ABI_VERSION, "scaled", NULL, "Scales the gradients.", "0.5", NULL, 0}, scaled};

static mr_code make_data(void *ctx, const mr_input_context *c, mr_dataset **out, mr_status *st)
{
    char text[256];
    (void)ctx;
    snprintf(text, sizeof text,
             "range(600).shard(%d, %d).map(i => cast(i %% 20, \"float32\") / 10.0)"
             ".map(x => ([x], [2.0 * x - 1.0])).batch(30)",
             (int)c->num_input_pipelines, (int)c->input_pipeline_id);
    return mr_dataset_from_text(text, strlen(text), NULL, out, st);
}

static void say_where(void *parent, const char *address)
{
    fprintf(parent, "%s\n", address);
    fclose(parent);
}

/* Starts a server or worker, and adds its address to the cluster. */
static mr_code start(mr_cluster *cluster, mr_task_type type, mr_status *st)
{
    int ends[2];
    char address[64] = "";
    pid_t pid = pipe(ends) == 0 ? fork() : -1;
    if (pid < 0)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED, "no process for a server");
    if (pid == 0) {
        mr_cluster own = {0};
        mr_server_opts o = {.cluster = &own, .listen = "127.0.0.1:0", .ready = say_where};
        o.ctx = fdopen(ends[1], "w");
        mr_code rc = mr_cluster_add(&own, type, "127.0.0.1:1", st);
        if (rc == MR_OK && (rc = mr_cluster_set_task(&own, type, 0, st)) == MR_OK)
            rc = mr_server_run(&o, st);
        _exit(rc != MR_OK);
    }
    close(ends[1]);
    if (read(ends[0], address, sizeof address - 1) <= 0)
        return mr_fail(st, MR_UNAVAILABLE, "a server has not started");
    close(ends[0]);
    address[strcspn(address, "\n")] = '\0';
    return mr_cluster_add(cluster, type, address, st);
}

static mr_code train(mr_coordinator *c, mr_model *m, mr_status *st)
{
    double loss[200];
    float w, b;
    MR_TRY(mr_coordinator_create_per_worker_dataset(c, make_data, NULL, st));
    for (int i = 0; i < 200; i++)
        MR_TRY(mr_coordinator_schedule(c, i < 100 ? NULL : "scaled", "0.5", &loss[i], st));
    MR_TRY(mr_coordinator_join(c, st));
    MR_TRY(mr_variable_read(mr_model_variable(m, 0), &w, st));
    MR_TRY(mr_variable_read(mr_model_variable(m, 1), &b, st));
    printf("y = %.2f x + %.2f, the loss is %s\n", (double)w, (double)b,
           loss[199] < loss[0] ? "less than at first" : "not less");
    return MR_OK;
}

int main(void)
{
    mr_status st;
    mr_cluster cluster = {0};
    mr_strategy *s = NULL;
    mr_model *m = NULL;
    mr_loss *loss = NULL;
    mr_optimizer *o = NULL;
    mr_coordinator *c = NULL;
    mr_code rc = mr_worker_step_register(&step, &st);
    for (int i = 0; i < 3 && rc == MR_OK; i++)
        rc = start(&cluster, i == 0 ? MR_TASK_PS : MR_TASK_WORKER, &st);
    const mr_workers_opts workers = {.cluster = &cluster};
    if (rc == MR_OK && (rc = mr_strategy_parameter_server(&s, NULL, &workers, &st)) == MR_OK &&
        (rc = mr_model_parse(&m, "input(1).dense(1)", &st)) == MR_OK &&
        (rc = mr_loss_parse(&loss, "mse", &st)) == MR_OK &&
        (rc = mr_optimizer_parse(&o, "sgd(0.2)", &st)) == MR_OK &&
        (rc = mr_coordinator_open(&c, s, m, loss, o, NULL, &st)) == MR_OK)
        rc = train(c, m, &st);
    if (rc != MR_OK)
        fprintf(stderr, "coordinator: %s\n", st.message);
    mr_coordinator_close(c);
    mr_model_free(m);
    mr_optimizer_free(o);
    mr_loss_free(loss);
    mr_strategy_free(s); /* which ends the other processes */
    mr_cluster_reset(&cluster);
    while (wait(NULL) > 0)
        continue;
    return rc != MR_OK;
}
