/* SPDX-License-Identifier: Apache-2.0 */
/* An input function on two workers: the program starts itself twice, each time with another
 * TF_CONFIG, as a launcher on two machines would. Each process prints the batches of its
 * replicas. */
#include <millrace/millrace.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 2, REPLICAS = 2, GLOBAL_BATCH = 8, EXAMPLES = 20 };

static int report(const mr_status *st)
{
    char line[1600];
    mr_status_format(st, line, sizeof line);
    fprintf(stderr, "input_function: %s\n", line);
    return 1;
}

/* Batches by the per-replica size and shards by the context: nothing else is done on a worker. */
static mr_code make_input(void *ctx, const mr_input_context *c, mr_dataset **out, mr_status *st)
{
    int64_t batch;
    (void)ctx;
    MR_TRY(mr_input_context_get_per_replica_batch_size(c, GLOBAL_BATCH, &batch, st));
    mr_dataset *ds = mr_range(0, EXAMPLES, 1);
    ds = mr_shard(ds, c->num_input_pipelines, c->input_pipeline_id, NULL);
    *out = mr_batch(ds, batch, NULL);
    return MR_OK;
}

static void print_step(int64_t worker, const mr_step *step)
{
    printf("worker %" PRId64 " step %" PRId64 ":", worker, step->step);
    for (size_t r = 0; r < step->n_replicas; r++) {
        const mr_array *a = &step->replicas[r].columns[0];
        printf(" [");
        for (int64_t i = 0; i < a->shape[0]; i++)
            printf("%s%" PRId64, i ? " " : "", ((const int64_t *)a->data)[i]);
        printf("]");
    }
    printf("\n");
}

static int run_worker(void)
{
    mr_status st;
    mr_cluster cluster = {0};
    mr_dist_dataset *dd = NULL;
    mr_dist_iterator *it = NULL;
    mr_step step;
    mr_code rc = mr_cluster_from_env(&cluster, &st);
    if (rc == MR_OK) {
        const mr_distribute_opts opts = {.cluster = &cluster, .replicas = REPLICAS};
        rc = mr_distribute_from_function(make_input, NULL, &opts, &dd, &st);
    }
    if (rc == MR_OK)
        rc = mr_dist_iterator_open(&it, dd, NULL, &st);
    while (rc == MR_OK && (rc = mr_dist_iterator_next(it, NULL, &step, &st)) == MR_OK)
        print_step(mr_dist_dataset_worker(dd), &step);
    mr_dist_iterator_close(it);
    mr_dist_dataset_free(dd);
    mr_cluster_reset(&cluster);
    return rc == MR_END ? 0 : report(&st);
}

int main(int argc, char **argv)
{
    int failed = 0;
    (void)argc;
    if (getenv("TF_CONFIG"))
        return run_worker();
    for (int i = 0; i < WORKERS; i++) {
        char config[200];
        snprintf(config, sizeof config,
                 "{\"cluster\": {\"worker\": [\"localhost:1234\", \"localhost:1235\"]},"
                 " \"task\": {\"type\": \"worker\", \"index\": %d}}",
                 i);
        pid_t pid = fork();
        if (pid == 0) {
            setenv("TF_CONFIG", config, 1);
            execv("/proc/self/exe", argv);
            _exit(127);
        }
        int status;
        failed |= pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0;
    }
    return failed;
}
