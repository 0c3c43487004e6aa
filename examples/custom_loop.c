/* SPDX-License-Identifier: Apache-2.0 */
/* A custom training loop on two replicas: fits a line through points, step by step. */
#include <stdio.h>
#include <string.h>
#include <millrace/millrace.h>
#include <millrace/millrace-trainer.h>

typedef struct loop {
    mr_model *model;
    mr_optimizer *optimizer;
    mr_loss *loss;
    mr_step step;         /* one batch per replica */
    int64_t rows;         /* of the global batch; the last one is smaller */
    mr_distributed share; /* out: the sum of each replica's losses */
} loop;

/* Runs on every replica: submits work, which mr_strategy_run waits for. */
static mr_code step(mr_replica *r, void *ctx, mr_status *st)
{
    loop *l = ctx;
    size_t id = mr_replica_id(r);
    const mr_array *rows = l->step.replicas[id].columns; /* features and labels, on the host */
    mr_array x, y, predicted;
    void *sum;
    MR_TRY(mr_replica_to_device(r, &rows[0], &x, st));
    MR_TRY(mr_replica_to_device(r, &rows[1], &y, st));
    MR_TRY(mr_replica_scratch(r, sizeof(double), &sum, st));
    mr_loss_opts how = {.scale = 1.0 / (double)l->rows, .sum = sum};
    MR_TRY(mr_model_forward(l->model, r, &x, &(mr_forward_opts){.training = true}, &predicted, st));
    MR_TRY(mr_model_loss(l->model, r, 0, l->loss, &y, &how, NULL, st));
    MR_TRY(mr_model_backward(l->model, r, st));
    MR_TRY(mr_model_apply_gradients(l->model, r, l->optimizer, st));
    return mr_stream_copy(mr_replica_stream(r), l->share.values[id].data, sum, sizeof(double), st);
}

static mr_code zero(const mr_value_context *v, void *ctx, mr_array *out, mr_status *st)
{
    (void)v, (void)ctx;
    return mr_tensor_alloc(out, MR_FLOAT64, 0, NULL, st);
}

static mr_code train(mr_strategy *s, loop *l, mr_dist_iterator *it, mr_status *st)
{
    float w[2], b;
    mr_array sum;
    MR_TRY(mr_model_build(l->model, s, 1, (int64_t[]){2}, &(mr_model_opts){.seed = 1}, st));
    for (int epoch = 0; epoch < 30; epoch++) {
        mr_code rc;
        while ((rc = mr_dist_iterator_next(it, NULL, &l->step, st)) == MR_OK) {
            l->rows = 0;
            for (size_t r = 0; r < l->step.n_replicas; r++)
                l->rows += l->step.replicas[r].columns[0].shape[0];
            MR_TRY(mr_strategy_run(s, step, l, st));
        }
        if (rc != MR_END)
            return rc;
        MR_TRY(mr_dist_iterator_rewind(it, st));
    }
    MR_TRY(mr_strategy_reduce(s, MR_REDUCE_SUM, &l->share, NULL, &sum, st));
    printf("loss of the last step: %.4f\n", *(double *)sum.data / (double)l->rows);
    mr_array_reset(&sum);
    MR_TRY(mr_variable_read(mr_model_variable(l->model, 0), w, st));
    MR_TRY(mr_variable_read(mr_model_variable(l->model, 1), &b, st));
    printf("y = %.2f a + %.2f b + %.2f\n", (double)w[0], (double)w[1], (double)b);
    return MR_OK;
}

int main(void)
{
    static const char data[] =
        "range(1000).map(i => (cast(i % 7, \"float32\"), cast(i % 5, \"float32\")))"
        ".map((a, b) => (stack(a, b), 3.0 * a - 2.0 * b + 1.0)).batch(64)";
    mr_status st;
    mr_strategy *s = NULL;
    mr_dataset *ds = NULL;
    mr_dist_dataset *dd = NULL;
    mr_dist_iterator *it = NULL;
    loop l = {0};
    mr_code rc = mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 2}, &st);
    if (rc == MR_OK && (rc = mr_dataset_from_text(data, strlen(data), NULL, &ds, &st)) == MR_OK &&
        (rc = mr_distribute_dataset(ds, &(mr_distribute_opts){.replicas = 2}, &dd, &st)) == MR_OK &&
        (rc = mr_dist_iterator_open(&it, dd, NULL, &st)) == MR_OK &&
        (rc = mr_model_parse(&l.model, "input(2).dense(1)", &st)) == MR_OK &&
        (rc = mr_optimizer_parse(&l.optimizer, "adam(learning_rate=0.05)", &st)) == MR_OK &&
        (rc = mr_loss_parse(&l.loss, "mse", &st)) == MR_OK &&
        (rc = mr_strategy_distribute_values_from_function(s, zero, NULL, &l.share, &st)) == MR_OK)
        rc = train(s, &l, it, &st);
    if (rc != MR_OK)
        fprintf(stderr, "custom_loop: %s\n", st.message);
    mr_distributed_reset(&l.share);
    mr_loss_free(l.loss);
    mr_optimizer_free(l.optimizer);
    mr_model_free(l.model);
    mr_dist_iterator_close(it);
    mr_dist_dataset_free(dd);
    mr_dataset_unref(ds);
    mr_strategy_free(s);
    return rc != MR_OK;
}
