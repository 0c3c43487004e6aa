/* SPDX-License-Identifier: Apache-2.0 */
/* Trains a model, saves it, and predicts with the saved model on another number of replicas. */
#include <stdio.h>
#include <string.h>
#include <millrace/millrace.h>
#include <millrace/millrace-trainer.h>

static const char data[] = "range(64).map(i => ([cast(i % 8, \"float32\")], "
                           "[3.0 * cast(i % 8, \"float32\")])).batch(16)";
static const char questions[] = "range(4).map(i => [10.0 + cast(i, \"float32\")]).batch(3)";

static mr_code train(mr_strategy *s, mr_dataset *ds, const char *directory, mr_status *st)
{
    mr_model *m = NULL;
    mr_loss *loss = NULL;
    mr_optimizer *o = NULL;
    mr_code rc = mr_model_parse(&m, "dense(1)", st);
    if (rc == MR_OK)
        rc = mr_loss_parse(&loss, "mse", st);
    if (rc == MR_OK)
        rc = mr_optimizer_parse(&o, "sgd(0.02)", st);
    if (rc == MR_OK)
        rc = mr_fit(s, m, ds, loss, o, &(mr_fit_opts){.epochs = 150}, NULL, st);
    if (rc == MR_OK)
        rc = mr_model_save(m, directory, &(mr_save_opts){.loss = loss, .optimizer = o}, st);
    mr_optimizer_free(o);
    mr_loss_free(loss);
    mr_model_free(m);
    return rc;
}

static mr_code print(void *ctx, const mr_array *predictions, mr_status *st)
{
    const float *y = predictions->data;
    (void)ctx, (void)st;
    for (int64_t i = 0; i < predictions->shape[0]; i++)
        printf("%.2f\n", (double)y[i]);
    return MR_OK;
}

static mr_code predict(mr_strategy *s, mr_dataset *ds, const char *directory, mr_status *st)
{
    mr_saved *saved;
    mr_model *m = NULL;
    MR_TRY(mr_saved_open(&saved, directory, st));
    mr_code rc = mr_model_parse(&m, mr_saved_model_text(saved), st);
    if (rc == MR_OK)
        rc = mr_saved_build(saved, m, s, NULL, st);
    if (rc == MR_OK)
        rc = mr_predict(s, m, ds, print, NULL, NULL, st);
    mr_model_free(m);
    mr_saved_close(saved);
    return rc;
}

/* Runs one of the two functions above on this number of replicas. */
static mr_code on(size_t replicas, const char *text, const char *directory,
                  mr_code (*fn)(mr_strategy *, mr_dataset *, const char *, mr_status *),
                  mr_status *st)
{
    mr_dataset *ds = NULL;
    mr_strategy *s = NULL;
    mr_code rc = mr_dataset_from_text(text, strlen(text), NULL, &ds, st);
    if (rc == MR_OK)
        rc = mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = replicas}, st);
    if (rc == MR_OK)
        rc = fn(s, ds, directory, st);
    mr_strategy_free(s);
    mr_dataset_unref(ds);
    return rc;
}

int main(int argc, char **argv)
{
    const char *directory = argc > 1 ? argv[1] : "line";
    char message[1024];
    mr_status st;
    mr_code rc = on(2, data, directory, train, &st);
    if (rc == MR_OK)
        rc = on(1, questions, directory, predict, &st);
    if (rc == MR_OK)
        return 0;
    mr_status_format(&st, message, sizeof message);
    fprintf(stderr, "%s\n", message);
    return 1;
}
