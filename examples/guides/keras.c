/* SPDX-License-Identifier: Apache-2.0 */
/* Keras's fit with custom callbacks: a convolutional model on two replicas, a learning rate that
 * decreases with the epochs, and a callback that prints it.
 *   keras TRAIN TEST [EPOCHS]     files from `millrace write --idx`; 12 epochs */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <millrace/millrace.h>
#include <millrace/millrace-trainer.h>

static mr_code decay(void *ctx, const mr_train_event *e, mr_status *st)
{
    (void)ctx, (void)st;
    mr_optimizer_set_learning_rate(e->optimizer, e->epoch <= 3   ? 1e-3
                                                 : e->epoch <= 7 ? 1e-4
                                                                 : 1e-5);
    return MR_OK;
}

static mr_code print_lr(void *ctx, const mr_train_event *e, mr_status *st)
{
    (void)ctx, (void)st;
    printf("epoch %d: loss %.4f, accuracy %.4f\nLearning rate for epoch %d is %g\n", (int)e->epoch,
           (double)e->loss, mr_metric_result(e->metrics[0]), (int)e->epoch,
           mr_optimizer_learning_rate(e->optimizer));
    return MR_OK;
}

/* Images as float32 from 0 to 1, with one channel; scaled, cached, shuffled, batched. */
static mr_code open_data(mr_dataset **ds, const char *files, bool train, mr_status *st)
{
    char text[1200];
    snprintf(text, sizeof text,
             "tfrecord(\"%s\").map(r => parse_example(r, image=bytes, label=int64))"
             ".map(e => (reshape(cast(decode_raw(e[\"image\"], \"uint8\"), \"float32\") / 255.0,"
             " [28, 28, 1]), e[\"label\"])).cache()%s.batch(128)",
             files, train ? ".shuffle(10000, seed=1)" : "");
    return mr_dataset_from_text(text, strlen(text), NULL, ds, st);
}

int main(int argc, char **argv)
{
    static const char model[] = "conv2d(32, 3, activation=\"relu\").max_pool(2).flatten()"
                                ".dense(64, activation=\"relu\").dense(10)";
    static const char *const metrics[] = {"accuracy"};
    mr_status st;
    mr_strategy *s = NULL;
    mr_model *m = NULL;
    mr_loss *l = NULL;
    mr_optimizer *o = NULL;
    mr_dataset *train = NULL, *test = NULL;
    mr_fit_result r;
    if (argc < 3) {
        fprintf(stderr, "usage: keras TRAIN TEST [EPOCHS]\n");
        return 2;
    }
    const mr_callback callbacks[] = {{.epoch_begin = decay}, {.epoch_end = print_lr}};
    mr_fit_opts how = {.epochs = argc > 3 ? atoi(argv[3]) : 12,
                       .metrics = metrics,
                       .n_metrics = 1,
                       .callbacks = callbacks,
                       .n_callbacks = 2,
                       .seed = 1};
    mr_code rc = mr_strategy_mirrored(&s, &(mr_strategy_opts){.num_replicas = 2}, &st);
    if (rc == MR_OK) {
        printf("Number of devices: %zu\n", mr_strategy_num_replicas_in_sync(s));
        rc = mr_model_parse(&m, model, &st);
    }
    if (rc == MR_OK && (rc = open_data(&train, argv[1], true, &st)) == MR_OK &&
        (rc = open_data(&test, argv[2], false, &st)) == MR_OK &&
        (rc = mr_loss_parse(&l, "sparse_categorical_crossentropy(from_logits=true)", &st)) ==
            MR_OK &&
        (rc = mr_optimizer_parse(&o, "adam", &st)) == MR_OK &&
        (rc = mr_fit(s, m, train, l, o, &how, NULL, &st)) == MR_OK &&
        (rc = mr_evaluate(s, m, test, l, &how, &r, &st)) == MR_OK)
        printf("Eval loss: %.4f, Eval accuracy: %.4f\n", (double)r.loss, r.metrics[0]);
    if (rc != MR_OK)
        fprintf(stderr, "keras: %s\n", st.message);
    mr_dataset_unref(train);
    mr_dataset_unref(test);
    mr_optimizer_free(o);
    mr_loss_free(l);
    mr_model_free(m);
    mr_strategy_free(s);
    return rc != MR_OK;
}
