/* SPDX-License-Identifier: Apache-2.0 */
/* The ways to feed replicas, as in the guide on distributed input: the elements of a distributed
 * dataset and its iterator, optionals, values not from datasets, and predictions in the order of
 * their inputs.
 *   distributed_input spec | loop | optional | order | values | generator     (on 4 replicas) */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <millrace/millrace.h>
#include <millrace/millrace-trainer.h>

enum { REPLICAS = 4 };

static mr_strategy *strategy;
static mr_dataset *ds;
static mr_dist_dataset *dd;
static mr_dist_iterator *it;

static mr_code distribute(const char *text, mr_status *st)
{
    const mr_distribute_opts o = {.replicas = REPLICAS};
    if (text)
        MR_TRY(mr_dataset_from_text(text, strlen(text), NULL, &ds, st));
    MR_TRY(mr_distribute_dataset(ds, &o, &dd, st));
    return mr_dist_iterator_open(&it, dd, NULL, st);
}

static void print_floats(const mr_array *a)
{
    printf("[");
    for (size_t i = 0; i < mr_array_row_values(a); i++)
        printf("%s%.2g", i ? " " : "", (double)((const float *)a->data)[i]);
    printf("]");
}

/* ---- element_spec of a dataset, a distributed dataset, and its iterator */
static mr_code show_spec(mr_status *st)
{
    char text[200];
    MR_TRY(distribute("from_tensors(([1.0], [1.0])).repeat(100).batch(16)", st));
    mr_spec_format(mr_dataset_spec(ds), text, sizeof text);
    printf("dataset %s\n", text);
    mr_spec_format(mr_dist_dataset_spec(dd), text, sizeof text);
    printf("a replica's share %s\n", text);
    mr_spec_format(mr_dist_iterator_spec(it), text, sizeof text);
    printf("of the iterator %s\n", text);
    return MR_OK;
}

/* ---- labels - 0.3 * features on every replica; a loop over the steps, then 2 steps per pass */
typedef struct pass {
    mr_step step;
    mr_distributed loss;
} pass;

static mr_code train_step(mr_replica *r, void *ctx, mr_status *st)
{
    pass *p = ctx;
    size_t id = mr_replica_id(r);
    const mr_array *in = p->step.replicas[id].columns;
    mr_array x, y;
    MR_TRY(mr_replica_to_device(r, &in[0], &x, st));
    MR_TRY(mr_replica_to_device(r, &in[1], &y, st));
    const mr_math_combine o = {
        .n = mr_array_row_values(&y), .a = -0.3f, .x = x.data, .b = 1, .y = y.data};
    MR_TRY(mr_replica_math(r)->combine(mr_replica_stream(r), &o, st));
    mr_array_reset(&p->loss.values[id]);
    MR_TRY(mr_tensor_alloc(&p->loss.values[id], MR_FLOAT32, y.rank, y.shape, st));
    return mr_stream_copy(mr_replica_stream(r), p->loss.values[id].data, y.data,
                          o.n * sizeof(float), st);
}

static mr_code run_and_print(pass *p, mr_status *st)
{
    const mr_array *losses;
    size_t n;
    MR_TRY(mr_strategy_run(strategy, train_step, p, st));
    mr_strategy_local_results(strategy, &p->loss, &losses, &n);
    printf("step %" PRId64 ":", p->step.step);
    for (size_t i = 0; i < n; i++) {
        printf(" ");
        print_floats(&losses[i]);
    }
    printf("\n");
    return MR_OK;
}

static mr_code show_loop(mr_status *st)
{
    pass p;
    mr_code rc;
    MR_TRY(distribute("from_tensors(([1.0], [1.0])).repeat(36).batch(16)", st));
    MR_TRY(mr_distributed_init(&p.loss, strategy, st));
    while ((rc = mr_dist_iterator_next(it, NULL, &p.step, st)) == MR_OK &&
           (rc = run_and_print(&p, st)) == MR_OK) {
    }
    if (rc == MR_END)
        rc = mr_dist_iterator_next(it, NULL, &p.step, st) == MR_END /* the end is sticky */
                 ? mr_dist_iterator_rewind(it, st)
                 : MR_INTERNAL;
    for (int i = 0; i < 2 && rc == MR_OK; i++) {
        rc = mr_dist_iterator_next(it, NULL, &p.step, st);
        if (rc == MR_OK)
            rc = run_and_print(&p, st);
    }
    mr_distributed_reset(&p.loss);
    return rc;
}

/* ---- get_next_as_optional: no error at the end */
static mr_code show_optional(mr_status *st)
{
    mr_optional_step o;
    MR_TRY(distribute("range(9).batch(4)", st));
    for (;;) {
        MR_TRY(mr_dist_iterator_get_next_as_optional(it, NULL, &o, st));
        if (!o.has_value)
            break;
        printf("step %" PRId64 ":", o.value.step);
        for (size_t r = 0; r < o.value.n_replicas; r++) {
            const mr_array *a = &o.value.replicas[r].columns[0];
            printf(" [");
            for (size_t i = 0; i < mr_array_row_values(a); i++)
                printf("%s%" PRId64, i ? " " : "", ((const int64_t *)a->data)[i]);
            printf("]");
        }
        printf("\n");
    }
    printf("no value\n");
    return MR_OK;
}

/* ---- predictions are in the order of their inputs: no index is needed to reorder them */
static mr_code print_predictions(void *ctx, const mr_array *p, mr_status *st)
{
    int *i = ctx;
    (void)st;
    for (size_t k = 0; k < mr_array_row_values(p); k++, ++*i)
        printf("%s%d: %g", *i ? ", " : "{", *i, (double)((const float *)p->data)[k]);
    return MR_OK;
}

static mr_code show_order(mr_status *st)
{
    static const char text[] = "range(24).map(i => [cast(i, \"float32\")]).batch(9)";
    int i = 0;
    mr_model *twice = NULL;
    MR_TRY(mr_dataset_from_text(text, strlen(text), NULL, &ds, st));
    MR_TRY(mr_model_parse(&twice, "dense(1, kernel_initializer=constant(2))", st));
    mr_code rc = mr_predict(strategy, twice, ds, print_predictions, &i, NULL, st);
    printf("}\n");
    mr_model_free(twice);
    return rc;
}

/* ---- a value for each replica from a function */
static mr_code its_number(const mr_value_context *v, void *ctx, mr_array *out, mr_status *st)
{
    (void)ctx;
    MR_TRY(mr_tensor_alloc(out, MR_FLOAT32, 0, NULL, st));
    *(float *)out->data = (float)v->replica_id_in_sync_group;
    return MR_OK;
}

static mr_code show_values(mr_status *st)
{
    mr_distributed d;
    MR_TRY(mr_strategy_distribute_values_from_function(strategy, its_number, NULL, &d, st));
    for (size_t i = 0; i < d.n; i++) {
        printf("replica %zu: ", i);
        print_floats(&d.values[i]);
        printf("\n");
    }
    mr_distributed_reset(&d);
    return MR_OK;
}

/* ---- a generator, not batched: each replica gets one element of each step */
static mr_code next_vector(void *ctx, void *unused, size_t want, mr_block *out, mr_status *st)
{
    int *left = ctx;
    (void)unused;
    (void)want;
    if (*left == 0)
        return MR_END;
    MR_TRY(mr_block_prepare(out, 1, st));
    MR_TRY(mr_array_alloc(&out->columns[0], MR_FLOAT32, 1, (int64_t[]){4}, 1, st));
    for (int i = 0; i < 4; i++)
        ((float *)out->columns[0].data)[i] = (float)(*left * 4 - i) / 40.0f;
    out->rows = 1;
    --*left;
    return MR_OK;
}

static mr_code ten_vectors(void *ctx, const mr_input_context *c, mr_dataset **out, mr_status *st)
{
    const mr_generator g = {.ctx = ctx, .next = next_vector};
    mr_spec *four = mr_spec_tensor(MR_FLOAT32, 1, (int64_t[]){4});
    (void)c;
    (void)st;
    *out = mr_from_generator(&g, four);
    mr_spec_unref(four);
    return MR_OK;
}

static mr_code show_generator(mr_status *st)
{
    int left = 10;
    mr_code rc;
    mr_step step;
    const mr_distribute_opts o = {.replicas = REPLICAS};
    MR_TRY(mr_distribute_from_function(ten_vectors, &left, &o, &dd, st));
    MR_TRY(mr_dist_iterator_open(&it, dd, NULL, st));
    while ((rc = mr_dist_iterator_next(it, NULL, &step, st)) == MR_OK) {
        printf("step %" PRId64 ":", step.step);
        for (size_t r = 0; r < step.n_replicas; r++) {
            printf(" ");
            print_floats(&step.replicas[r].columns[0]);
        }
        printf("\n");
    }
    return rc == MR_END ? MR_OK : rc;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        mr_code (*show)(mr_status *st);
    } parts[] = {{"spec", show_spec},   {"loop", show_loop},     {"optional", show_optional},
                 {"order", show_order}, {"values", show_values}, {"generator", show_generator}};
    mr_status st;
    size_t i = 0, n = sizeof parts / sizeof *parts;
    while (i < n && !(argc == 2 && strcmp(argv[1], parts[i].name) == 0))
        i++;
    if (i == n) {
        fprintf(stderr, "usage: distributed_input spec|loop|optional|order|values|generator\n");
        return 2;
    }
    const mr_strategy_opts o = {.num_replicas = REPLICAS};
    mr_code rc = mr_strategy_mirrored(&strategy, &o, &st);
    if (rc == MR_OK)
        rc = parts[i].show(&st);
    if (rc != MR_OK)
        fprintf(stderr, "distributed_input: %s\n", st.message);
    mr_dist_iterator_close(it);
    mr_dist_dataset_free(dd);
    mr_dataset_unref(ds);
    mr_strategy_free(strategy);
    return rc != MR_OK;
}
