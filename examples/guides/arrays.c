/* SPDX-License-Identifier: Apache-2.0 */
/* Strategies in brief: the default strategy, the variables that it creates, and fit on a dataset
 * and then on arrays in memory. Prints the same losses as the guide.
 *   arrays [STRATEGY [REPLICAS]] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <millrace/millrace.h>
#include <millrace/millrace-trainer.h>

/* strategy.reduce("SUM", 1., axis=None) */
static mr_code print_sum_of_one(mr_strategy *s, mr_status *st)
{
    mr_array one, sum;
    mr_distributed d;
    MR_TRY(mr_tensor_alloc(&one, MR_FLOAT32, 0, NULL, st));
    *(float *)one.data = 1;
    MR_TRY(mr_distributed_init_plain(&d, &one, st));
    mr_code rc = mr_strategy_reduce(s, MR_REDUCE_SUM, &d, NULL, &sum, st);
    if (rc == MR_OK) {
        printf("%s: reduce gives %.1f\n", mr_strategy_name(s), (double)*(float *)sum.data);
        mr_array_reset(&sum);
    }
    mr_distributed_reset(&d);
    return rc;
}

static mr_code print_variable(mr_strategy *s, mr_status *st)
{
    const mr_variable_opts ones = {.initializer = {.kind = MR_INIT_ONES}};
    mr_variable *v = NULL;
    char *text;
    MR_TRY(mr_variable_new(&v, s, 0, NULL, &ones, st));
    mr_code rc = mr_variable_to_text(v, &text, st);
    if (rc == MR_OK) {
        puts(text);
        mr_free(text);
    }
    mr_variable_free(v);
    return rc;
}

static mr_code print_loss(void *ctx, const mr_train_event *e, mr_status *st)
{
    (void)st;
    printf("%s epoch %d: loss %.4f\n", (const char *)ctx, (int)e->epoch, (double)e->loss);
    return MR_OK;
}

/* 100 examples of 1 with label 1, in memory. */
static mr_code fit_arrays(mr_strategy *s, mr_model *m, mr_loss *l, mr_optimizer *o,
                          const mr_fit_opts *opts, mr_status *st)
{
    static float ones[100];
    for (int i = 0; i < 100; i++)
        ones[i] = 1;
    const mr_array a = {.dtype = MR_FLOAT32, .rank = 1, .shape = {1}, .rows = 100, .data = ones};
    return mr_fit_from_arrays(s, m, &(mr_fit_arrays){.x = &a, .y = &a, .batch_size = 10}, l, o,
                              opts, NULL, st);
}

static mr_code fit_both(mr_strategy *s, mr_model *m, mr_loss *l, mr_optimizer *o, mr_status *st)
{
    static const char text[] = "from_tensors(([1.0], [1.0])).repeat(100).batch(10)";
    mr_dataset *ds = NULL;
    mr_fit_result evaluated;
    char dataset[] = "dataset", memory[] = "arrays";
    mr_callback show = {.ctx = dataset, .epoch_end = print_loss};
    mr_fit_opts two = {.epochs = 2, .callbacks = &show, .n_callbacks = 1};
    mr_code rc = mr_dataset_from_text(text, strlen(text), NULL, &ds, st);
    if (rc == MR_OK && (rc = mr_fit(s, m, ds, l, o, &two, NULL, st)) == MR_OK &&
        (rc = mr_evaluate(s, m, ds, l, NULL, &evaluated, st)) == MR_OK)
        printf("evaluate: loss %.4f\n", (double)evaluated.loss);
    show.ctx = memory;
    if (rc == MR_OK)
        rc = fit_arrays(s, m, l, o, &two, st);
    mr_dataset_unref(ds);
    return rc;
}

int main(int argc, char **argv)
{
    mr_status st;
    mr_strategy *s = NULL;
    mr_model *m = NULL;
    mr_loss *l = NULL;
    mr_optimizer *o = NULL;
    const mr_strategy_opts opts = {.num_replicas = argc > 2 ? strtoul(argv[2], NULL, 10) : 0};
    mr_code rc = print_sum_of_one(mr_strategy_current(), &st);
    if (rc == MR_OK &&
        (rc = mr_strategy_by_name(&s, argc > 1 ? argv[1] : NULL, &opts, NULL, &st)) == MR_OK &&
        (rc = print_variable(s, &st)) == MR_OK &&
        (rc = mr_model_parse(&m, "input(1).dense(1, kernel_initializer=constant(-0.78005905))",
                             &st)) == MR_OK &&
        (rc = mr_loss_parse(&l, "mse", &st)) == MR_OK &&
        (rc = mr_optimizer_parse(&o, "sgd", &st)) == MR_OK)
        rc = fit_both(s, m, l, o, &st);
    if (rc != MR_OK)
        fprintf(stderr, "arrays: %s\n", st.message);
    mr_optimizer_free(o);
    mr_loss_free(l);
    mr_model_free(m);
    mr_strategy_free(s);
    return rc != MR_OK;
}
