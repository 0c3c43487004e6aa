/* SPDX-License-Identifier: Apache-2.0 */
/* Built-in callbacks by name together with a custom one, and the results of each epoch. */
#include <stdio.h>
#include <millrace/millrace.h>
#include <millrace/millrace-trainer.h>

static const char data[] = "range(64).map(i => ([cast(i % 8, \"float32\")], "
                           "[3.0 * cast(i % 8, \"float32\")])).batch(16)";
static const char *const names[] = {"learning_rate_schedule([[0, 0.02], [2, 0.01]])",
                                    "early_stopping(monitor=\"loss\", patience=2)",
                                    "terminate_on_nan()"};
enum { N = sizeof names / sizeof *names };

/* Counts the examples, and ends training when it has seen enough. */
static mr_code count(void *ctx, const mr_train_event *e, mr_status *st)
{
    int64_t *seen = ctx;
    (void)st;
    *seen += e->rows;
    return *seen < 320 ? MR_OK : MR_END;
}

typedef struct parts {
    mr_strategy *s;
    mr_dataset *ds;
    mr_model *m;
    mr_loss *loss;
    mr_optimizer *o;
    mr_history *history;
    mr_callback callbacks[N + 1];
} parts;

static mr_code train(parts *p, mr_status *st)
{
    int64_t seen = 0;
    MR_TRY(mr_dataset_from_text(data, sizeof data - 1, NULL, &p->ds, st));
    MR_TRY(mr_strategy_mirrored(&p->s, &(mr_strategy_opts){.num_replicas = 2}, st));
    MR_TRY(mr_model_parse(&p->m, "dense(1)", st));
    MR_TRY(mr_loss_parse(&p->loss, "mse", st));
    MR_TRY(mr_optimizer_parse(&p->o, "sgd", st));
    MR_TRY(mr_history_new(&p->history, st));
    for (int i = 0; i < N; i++)
        MR_TRY(mr_callback_parse(&p->callbacks[i], names[i], st));
    p->callbacks[N] = (mr_callback){.ctx = &seen, .epoch_end = count};
    MR_TRY(mr_fit(
        p->s, p->m, p->ds, p->loss, p->o,
        &(mr_fit_opts){
            .epochs = 9, .callbacks = p->callbacks, .n_callbacks = N + 1, .history = p->history},
        NULL, st));
    const double *loss = mr_history_values(p->history, "loss");
    const double *rate = mr_history_values(p->history, "learning_rate");
    for (size_t i = 0; i < mr_history_epochs(p->history); i++)
        printf("epoch %zu: the loss %s, the learning rate was %.2f\n", i + 1,
               i > 0 && loss[i] < loss[i - 1] ? "fell" : "is the first", rate[i]);
    return MR_OK;
}

int main(void)
{
    parts p = {0};
    char message[1024];
    mr_status st;
    mr_code rc = train(&p, &st);
    for (int i = 0; i < N; i++)
        mr_callback_reset(&p.callbacks[i]);
    mr_history_free(p.history);
    mr_optimizer_free(p.o);
    mr_loss_free(p.loss);
    mr_model_free(p.m);
    mr_strategy_free(p.s);
    mr_dataset_unref(p.ds);
    if (rc == MR_OK)
        return 0;
    mr_status_format(&st, message, sizeof message);
    fprintf(stderr, "%s\n", message);
    return 1;
}
