/* SPDX-License-Identifier: Apache-2.0 */
/* Two models that train against each other: the discriminator learns to distinguish numbers from a
 * normal distribution from those that the generator makes from noise; the generator learns to make
 * such numbers, using the gradient through the discriminator.
 *   gan [REPLICAS [STEPS]] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <millrace/millrace.h>
#include <millrace/millrace-trainer.h>

static const char data[] = "range(64).repeat().map(i => (random_normal([1], mean=3.0, stddev=0.5), "
                           "random_normal([4], seed=1), [1.0], [0.0])).batch(64)";
static mr_model *generator, *discriminator;
static mr_optimizer *optimizers[2];
static mr_loss *loss;

/* The loss of the discriminator's output for x against `label`. */
static mr_code judge(mr_replica *r, const mr_array *x, const mr_array *label, mr_status *st)
{
    const mr_loss_opts how = {.scale = 1.0 / 64};
    mr_array says;
    MR_TRY(mr_model_forward(discriminator, r, x, &(mr_forward_opts){.training = true}, &says, st));
    return mr_model_loss(discriminator, r, 0, loss, label, &how, NULL, st);
}

static mr_code learn(mr_replica *r, const mr_array *x, const mr_array *label, mr_status *st)
{
    MR_TRY(judge(r, x, label, st));
    MR_TRY(mr_model_backward(discriminator, r, st));
    return mr_model_apply_gradients(discriminator, r, optimizers[1], st);
}

static mr_code step(mr_replica *r, void *ctx, mr_status *st)
{
    const mr_step *s = ctx;
    const mr_backward_opts through = {.input_gradient = true, .frozen = true};
    mr_array in[4], made; /* numbers, noise, ones, zeros */
    const float *by_made;
    for (size_t i = 0; i < 4; i++)
        MR_TRY(mr_replica_to_device(r, &s->replicas[mr_replica_id(r)].columns[i], &in[i], st));
    MR_TRY(mr_model_forward(generator, r, &in[1], &(mr_forward_opts){.training = true}, &made, st));
    MR_TRY(learn(r, &in[0], &in[2], st));
    MR_TRY(learn(r, &made, &in[3], st));
    MR_TRY(judge(r, &made, &in[2], st)); /* the generator's target is 1 */
    MR_TRY(mr_model_backward_with(discriminator, r, &through, &by_made, st));
    MR_TRY(mr_stream_copy(mr_replica_stream(r), mr_model_output_gradient(generator, r), by_made,
                          mr_array_row_bytes(&made), st));
    MR_TRY(mr_model_backward(generator, r, st));
    return mr_model_apply_gradients(generator, r, optimizers[0], st);
}

static mr_code add_up(void *ctx, const mr_array *p, mr_status *st)
{
    double *sums = ctx;
    (void)st;
    for (int64_t i = 0; i < p->shape[0]; i++) {
        double v = ((const float *)p->data)[i];
        sums[0] += v;
        sums[1] += v * v;
    }
    return MR_OK;
}

static mr_code train(mr_strategy *s, mr_dataset *ds, int steps, mr_status *st)
{
    const mr_distribute_opts o = {.replicas = (int64_t)mr_strategy_num_replicas_in_sync(s)};
    static const char noise[] = "range(1024).map(i => random_normal([4], seed=2)).batch(64)";
    mr_dist_dataset *dd = NULL;
    mr_dist_iterator *it = NULL;
    mr_dataset *test = NULL;
    double sums[2] = {0};
    mr_step batch;
    mr_code rc = mr_distribute_dataset(ds, &o, &dd, st);
    const mr_dist_iterator_opts seeded = {.run = {.seed = 5, .has_seed = true}};
    if (rc == MR_OK)
        rc = mr_dist_iterator_open(&it, dd, &seeded, st);
    for (int i = 0; i < steps && rc == MR_OK; i++)
        if ((rc = mr_dist_iterator_next(it, NULL, &batch, st)) == MR_OK)
            rc = mr_strategy_run(s, step, &batch, st);
    if (rc == MR_OK && (rc = mr_dataset_from_text(noise, strlen(noise), NULL, &test, st)) == MR_OK)
        rc = mr_predict(s, generator, test, add_up, sums, &(mr_fit_opts){.iterator = &seeded.run},
                        st);
    double mean = sums[0] / 1024;
    if (rc == MR_OK)
        printf("mean %.2f, deviation %.2f\n", mean, sqrt(sums[1] / 1024 - mean * mean));
    mr_dataset_unref(test);
    mr_dist_iterator_close(it);
    mr_dist_dataset_free(dd);
    return rc;
}

int main(int argc, char **argv)
{
    mr_status st;
    mr_strategy *s = NULL;
    mr_dataset *ds = NULL;
    const mr_strategy_opts o = {.num_replicas = argc > 1 ? strtoul(argv[1], NULL, 10) : 1};
    mr_code rc = mr_strategy_by_name(&s, "mirrored", &o, NULL, &st);
    if (rc == MR_OK &&
        (rc = mr_model_parse(&generator, "dense(16, activation=\"relu\").dense(1)", &st)) ==
            MR_OK &&
        (rc = mr_model_parse(&discriminator, "dense(16, activation=\"tanh\").dense(1)", &st)) ==
            MR_OK &&
        (rc = mr_model_build(generator, s, 1, (int64_t[]){4}, NULL, &st)) == MR_OK &&
        (rc = mr_model_build(discriminator, s, 1, (int64_t[]){1}, NULL, &st)) == MR_OK &&
        (rc = mr_optimizer_parse(&optimizers[0], "adam(0.002, beta_1=0.5)", &st)) == MR_OK &&
        (rc = mr_optimizer_parse(&optimizers[1], "adam(0.004, beta_1=0.5)", &st)) == MR_OK &&
        (rc = mr_loss_parse(&loss, "binary_crossentropy(from_logits=true)", &st)) == MR_OK &&
        (rc = mr_dataset_from_text(data, strlen(data), NULL, &ds, &st)) == MR_OK)
        rc = train(s, ds, argc > 2 ? atoi(argv[2]) : 1000, &st);
    if (rc != MR_OK)
        fprintf(stderr, "gan: %s\n", st.message);
    mr_dataset_unref(ds);
    mr_loss_free(loss);
    mr_optimizer_free(optimizers[0]);
    mr_optimizer_free(optimizers[1]);
    mr_model_free(generator);
    mr_model_free(discriminator);
    mr_strategy_free(s);
    return rc != MR_OK;
}
