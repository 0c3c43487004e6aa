/* SPDX-License-Identifier: Apache-2.0 */
/* The custom training loop of the guides: one dense unit, binary crossentropy on logits, SGD; first
 * a loop over the dataset, then ten steps with an iterator. Prints the loss of each step.
 *   custom_loop [STRATEGY [REPLICAS [EXAMPLES [L2]]]]     mirrored 1 100 0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <millrace/millrace.h>
#include <millrace/millrace-trainer.h>

enum { GLOBAL_BATCH = 5 };

typedef struct loop {
    mr_strategy *strategy;
    mr_model *model;
    mr_optimizer *optimizer;
    mr_loss *loss;
    mr_step step;         /* the distributed inputs */
    mr_distributed share; /* out: each replica's losses and its penalties */
} loop;

static mr_code train_step(mr_replica *r, void *ctx, mr_status *st)
{
    loop *l = ctx;
    size_t id = mr_replica_id(r);
    const mr_array *inputs = l->step.replicas[id].columns;
    mr_array features, labels, predictions;
    void *sums; /* of the losses, and of the penalties */
    MR_TRY(mr_replica_to_device(r, &inputs[0], &features, st));
    MR_TRY(mr_replica_to_device(r, &inputs[1], &labels, st));
    MR_TRY(mr_replica_scratch(r, 2 * sizeof(double), &sums, st));
    MR_TRY(mr_stream_set(mr_replica_stream(r), sums, 0, 2 * sizeof(double), st));
    const mr_forward_opts training = {.training = true};
    const mr_loss_opts how = {.scale = 1.0 / GLOBAL_BATCH, .sum = sums};
    MR_TRY(mr_model_forward(l->model, r, &features, &training, &predictions, st));
    MR_TRY(mr_model_loss(l->model, r, 0, l->loss, &labels, &how, NULL, st));
    MR_TRY(mr_model_regularization_loss(l->model, r, (double *)sums + 1, st));
    MR_TRY(mr_model_backward(l->model, r, st)); /* sums gradients over the replicas */
    MR_TRY(mr_model_apply_gradients(l->model, r, l->optimizer, st));
    return mr_stream_copy(mr_replica_stream(r), l->share.values[id].data, sums, 2 * sizeof(double),
                          st);
}

/* Losses are divided by the global batch size, penalties by the number of replicas. */
static mr_code distributed_train_step(loop *l, mr_status *st)
{
    mr_array sum;
    MR_TRY(mr_strategy_run(l->strategy, train_step, l, st));
    MR_TRY(mr_strategy_reduce(l->strategy, MR_REDUCE_SUM, &l->share, NULL, &sum, st));
    const double *both = sum.data;
    printf("%.7f\n", both[0] / GLOBAL_BATCH +
                         both[1] / (double)mr_strategy_num_replicas_in_sync(l->strategy));
    mr_array_reset(&sum);
    return MR_OK;
}

static mr_code train(loop *l, mr_dist_iterator *it, mr_status *st)
{
    mr_code rc;
    while ((rc = mr_dist_iterator_next(it, NULL, &l->step, st)) == MR_OK)
        MR_TRY(distributed_train_step(l, st));
    if (rc != MR_END)
        return rc;
    MR_TRY(mr_dist_iterator_rewind(it, st)); /* iter(dist_dataset) */
    for (int i = 0; i < 10; i++) {
        MR_TRY(mr_dist_iterator_next(it, NULL, &l->step, st));
        MR_TRY(distributed_train_step(l, st));
    }
    return MR_OK;
}

static mr_code two_values(const mr_value_context *v, void *ctx, mr_array *out, mr_status *st)
{
    (void)v, (void)ctx;
    return mr_tensor_alloc(out, MR_FLOAT64, 1, (int64_t[]){2}, st);
}

int main(int argc, char **argv)
{
    char model[128], data[128];
    mr_status st;
    loop l = {0};
    mr_dataset *ds = NULL;
    mr_dist_dataset *dd = NULL;
    mr_dist_iterator *it = NULL;
    const mr_strategy_opts opts = {.num_replicas = argc > 2 ? strtoul(argv[2], NULL, 10) : 1};
    const mr_distribute_opts share = {.replicas = (int64_t)opts.num_replicas};
    snprintf(data, sizeof data, "from_tensors(([1.0], [1.0])).repeat(%s).batch(%d)",
             argc > 3 ? argv[3] : "100", GLOBAL_BATCH);
    snprintf(model, sizeof model,
             "input(1).dense(1, kernel_initializer=constant(0.5), kernel_regularizer=l2(%s))",
             argc > 4 ? argv[4] : "0.0");
    mr_code rc =
        mr_strategy_by_name(&l.strategy, argc > 1 ? argv[1] : "mirrored", &opts, NULL, &st);
    if (rc == MR_OK && (rc = mr_model_parse(&l.model, model, &st)) == MR_OK &&
        (rc = mr_model_build(l.model, l.strategy, 1, (int64_t[]){1}, NULL, &st)) == MR_OK &&
        (rc = mr_optimizer_parse(&l.optimizer, "sgd", &st)) == MR_OK &&
        (rc = mr_loss_parse(&l.loss, "binary_crossentropy(from_logits=true)", &st)) == MR_OK &&
        (rc = mr_dataset_from_text(data, strlen(data), NULL, &ds, &st)) == MR_OK &&
        (rc = mr_distribute_dataset(ds, &share, &dd, &st)) == MR_OK &&
        (rc = mr_dist_iterator_open(&it, dd, NULL, &st)) == MR_OK &&
        (rc = mr_strategy_distribute_values_from_function(l.strategy, two_values, NULL, &l.share,
                                                          &st)) == MR_OK)
        rc = train(&l, it, &st);
    if (rc != MR_OK)
        fprintf(stderr, "custom_loop: %s\n", st.message);
    mr_distributed_reset(&l.share);
    mr_loss_free(l.loss);
    mr_optimizer_free(l.optimizer);
    mr_model_free(l.model);
    mr_dist_iterator_close(it);
    mr_dist_dataset_free(dd);
    mr_dataset_unref(ds);
    mr_strategy_free(l.strategy);
    return rc != MR_OK;
}
