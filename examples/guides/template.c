/* SPDX-License-Identifier: Apache-2.0 */
/* A template for custom training: globals, a constructor for each object, steps of one replica,
 * steps of all replicas, and the loops over epochs: training, validation, test. Here it trains two
 * classifiers, each with a separate optimizer, and averages their outputs.
 *   template [STRATEGY [REPLICAS [EPOCHS]]]     mirrored 2 3 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <millrace/millrace.h>
#include <millrace/millrace-trainer.h>

enum { MODELS = 2, FEATURES = 3, CLASSES = 3 };

/* ---- globals */
static mr_strategy *strategy;
static mr_model *models[MODELS];
static mr_optimizer *optimizers[MODELS];
static mr_loss *loss_object;
static mr_metric *train_accuracy, *validation_accuracy, *test_accuracy;
static mr_distributed losses; /* out: each replica's, one value per model */

enum { TRAIN, VALIDATION, TEST, SETS };
typedef struct set {
    const char *text;
    mr_dataset *ds;
    mr_dist_dataset *dd;
    mr_dist_iterator *it;
} set;
#define POINTS                                                                                     \
    ".map(i => (cast(i * 7919 % 101, \"float32\") / 101.0,"                                        \
    " cast(i * 104729 % 103, \"float32\") / 103.0))"                                               \
    ".map((a, b) => (stack(a, b, a * b), cast(2.0 * a > b, \"int64\") + cast(a + b > 1.2, "        \
    "\"int64\")))"
static set sets[SETS] = {{.text = "range(3000)" POINTS ".shuffle(3000, seed=1).batch(32)"},
                         {.text = "range(3000, 3500)" POINTS ".batch(32)"},
                         {.text = "range(3500, 4100)" POINTS ".batch(32)"}};

/* The input of a step. */
typedef struct pass {
    bool training;
    mr_metric *metric;
    mr_step step;
    int64_t rows; /* of the global batch */
} pass;

/* ---- constructors */
static mr_code create_loss_and_metrics(mr_status *st)
{
    MR_TRY(mr_loss_parse(&loss_object, "sparse_categorical_crossentropy(from_logits=true)", st));
    MR_TRY(mr_metric_parse(&train_accuracy, "accuracy", st));
    MR_TRY(mr_metric_parse(&validation_accuracy, "accuracy", st));
    return mr_metric_parse(&test_accuracy, "accuracy", st);
}

static mr_code create_models_and_optimizers(mr_status *st)
{
    static const char *const model_texts[] = {"dense(16, activation=\"relu\").dense(3)",
                                              "dense(8, activation=\"tanh\").dense(3)"};
    static const char *const optimizer_texts[] = {"adam(learning_rate=0.01)",
                                                  "sgd(learning_rate=0.1, momentum=0.9)"};
    for (size_t i = 0; i < MODELS; i++) {
        const mr_model_opts o = {.seed = i + 1};
        MR_TRY(mr_model_parse(&models[i], model_texts[i], st));
        MR_TRY(mr_model_build(models[i], strategy, 1, (int64_t[]){FEATURES}, &o, st));
        MR_TRY(mr_optimizer_parse(&optimizers[i], optimizer_texts[i], st));
    }
    return MR_OK;
}

static mr_code create_datasets(mr_status *st)
{
    const mr_distribute_opts o = {.replicas = (int64_t)mr_strategy_num_replicas_in_sync(strategy)};
    for (size_t i = 0; i < SETS; i++) {
        MR_TRY(mr_dataset_from_text(sets[i].text, strlen(sets[i].text), NULL, &sets[i].ds, st));
        MR_TRY(mr_distribute_dataset(sets[i].ds, &o, &sets[i].dd, st));
        MR_TRY(mr_dist_iterator_open(&sets[i].it, sets[i].dd, NULL, st));
    }
    return MR_OK;
}

static mr_code two_sums(const mr_value_context *v, void *ctx, mr_array *out, mr_status *st)
{
    (void)v, (void)ctx;
    return mr_tensor_alloc(out, MR_FLOAT64, 1, (int64_t[]){MODELS}, st);
}

/* ---- a step of one replica: loss, gradients, update, metric */
static mr_code replica_step(mr_replica *r, void *ctx, mr_status *st)
{
    const pass *p = ctx;
    size_t id = mr_replica_id(r);
    mr_stream *stream = mr_replica_stream(r);
    mr_array x, y, answer[MODELS];
    void *sums;
    MR_TRY(mr_replica_to_device(r, &p->step.replicas[id].columns[0], &x, st));
    MR_TRY(mr_replica_to_device(r, &p->step.replicas[id].columns[1], &y, st));
    MR_TRY(mr_replica_scratch(r, MODELS * sizeof(double), &sums, st));
    const mr_forward_opts how = {.training = p->training};
    for (size_t i = 0; i < MODELS; i++) {
        const mr_loss_opts loss = {.scale = 1.0 / (double)p->rows, .sum = (double *)sums + i};
        MR_TRY(mr_model_forward(models[i], r, &x, &how, &answer[i], st));
        MR_TRY(mr_model_loss(models[i], r, 0, loss_object, &y, &loss, NULL, st));
        if (p->training)
            MR_TRY(mr_model_backward(models[i], r, st));
    }
    for (size_t i = 0; i < MODELS && p->training; i++)
        MR_TRY(mr_model_apply_gradients(models[i], r, optimizers[i], st));
    const mr_math_combine mean = {.n = (size_t)answer[0].shape[0] * CLASSES,
                                  .a = 0.5f,
                                  .x = answer[1].data,
                                  .b = 0.5f,
                                  .y = answer[0].data};
    MR_TRY(mr_replica_math(r)->combine(stream, &mean, st));
    MR_TRY(mr_metric_update(p->metric, r, &y, &answer[0], st));
    return mr_stream_copy(stream, losses.values[id].data, sums, MODELS * sizeof(double), st);
}

/* ---- a step of all replicas */
static mr_code distributed_step(pass *p, double *loss, mr_status *st)
{
    mr_array sum;
    p->rows = 0;
    for (size_t r = 0; r < p->step.n_replicas; r++)
        p->rows += p->step.replicas[r].columns[0].shape[0];
    MR_TRY(mr_strategy_run(strategy, replica_step, p, st));
    MR_TRY(mr_strategy_reduce(strategy, MR_REDUCE_SUM, &losses, NULL, &sum, st));
    *loss += ((double *)sum.data)[0] + ((double *)sum.data)[1];
    mr_array_reset(&sum);
    return MR_OK;
}

/* Makes one pass over a set. *loss = the mean over its rows and over the models. */
static mr_code go_through(set *s, bool training, mr_metric *metric, double *loss, mr_status *st)
{
    pass p = {.training = training, .metric = metric};
    int64_t rows = 0;
    mr_code rc;
    *loss = 0;
    MR_TRY(mr_metric_reset(metric, st));
    while ((rc = mr_dist_iterator_next(s->it, NULL, &p.step, st)) == MR_OK) {
        MR_TRY(distributed_step(&p, loss, st));
        rows += p.rows;
    }
    *loss /= MODELS * (double)rows;
    return rc == MR_END ? mr_dist_iterator_rewind(s->it, st) : rc;
}

static mr_code custom_loop(int epochs, mr_status *st)
{
    double loss, validation_loss;
    for (int epoch = 1; epoch <= epochs; epoch++) {
        MR_TRY(go_through(&sets[TRAIN], true, train_accuracy, &loss, st));
        MR_TRY(go_through(&sets[VALIDATION], false, validation_accuracy, &validation_loss, st));
        printf("epoch %d  loss %.4f  accuracy %.4f  val_loss %.4f  val_accuracy %.4f\n", epoch,
               loss, mr_metric_result(train_accuracy), validation_loss,
               mr_metric_result(validation_accuracy));
    }
    MR_TRY(go_through(&sets[TEST], false, test_accuracy, &loss, st));
    printf("test  loss %.4f  accuracy %.4f\n", loss, mr_metric_result(test_accuracy));
    return MR_OK;
}

static void free_all(void)
{
    for (size_t i = 0; i < SETS; i++) {
        mr_dist_iterator_close(sets[i].it);
        mr_dist_dataset_free(sets[i].dd);
        mr_dataset_unref(sets[i].ds);
    }
    mr_distributed_reset(&losses);
    mr_metric_free(train_accuracy);
    mr_metric_free(validation_accuracy);
    mr_metric_free(test_accuracy);
    mr_loss_free(loss_object);
    for (size_t i = 0; i < MODELS; i++) {
        mr_optimizer_free(optimizers[i]);
        mr_model_free(models[i]);
    }
    mr_strategy_free(strategy);
}

int main(int argc, char **argv)
{
    mr_status st;
    const mr_strategy_opts o = {.num_replicas = argc > 2 ? strtoul(argv[2], NULL, 10) : 2};
    const char *name = argc > 1 ? argv[1] : "mirrored";
    mr_code rc = mr_strategy_by_name(&strategy, name, &o, NULL, &st);
    if (rc == MR_OK && (rc = create_loss_and_metrics(&st)) == MR_OK &&
        (rc = create_models_and_optimizers(&st)) == MR_OK && (rc = create_datasets(&st)) == MR_OK &&
        (rc = mr_strategy_distribute_values_from_function(strategy, two_sums, NULL, &losses,
                                                          &st)) == MR_OK)
        rc = custom_loop(argc > 3 ? atoi(argv[3]) : 3, &st);
    if (rc != MR_OK)
        fprintf(stderr, "template: %s\n", st.message);
    free_all();
    return rc != MR_OK;
}
