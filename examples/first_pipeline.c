/* SPDX-License-Identifier: Apache-2.0 */
/* A first pipeline: reads record files, parses the records and batches them.
 * usage: first_pipeline FILE...
 * "millrace write --out digits --idx IMAGES LABELS" makes such files. */
#include <millrace/millrace.h>
#include <stdio.h>

static int report(const mr_status *st)
{
    char text[1024];
    mr_status_format(st, text, sizeof text);
    fprintf(stderr, "%s\n", text);
    return 1;
}

static void use(const mr_array *labels)
{
    const int64_t *v = mr_array_at(labels, 0);
    for (int64_t i = 0; i < labels->shape[0]; i++)
        printf("%lld%s", (long long)v[i], i + 1 < labels->shape[0] ? " " : "\n");
}

static int run(const char *const *files, size_t n)
{
    mr_dataset *ds =
        mr_batch(mr_map(mr_tfrecord(files, n, NULL),
                        mr_fn_text("x => parse_example(x, image=bytes, label=int64)"), NULL),
                 32, NULL);
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    mr_code rc;
    if (mr_iterator_open(&it, ds, NULL, &st) != MR_OK)
        return report(&st);
    while ((rc = mr_iterator_next(it, 1, &b, &st)) == MR_OK)
        use(mr_block_column(&b, "label"));
    mr_block_reset(&b);
    mr_iterator_close(it);
    mr_dataset_unref(ds); /* rc is MR_END, or an error that st describes */
    return rc == MR_END ? 0 : report(&st);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr,
                "usage: first_pipeline FILE...\n"
                "  TFRecord files of tf.train.Examples with \"image\" (bytes) and \"label\" "
                "(int64)\n");
        return 2;
    }
    return run((const char *const *)argv + 1, (size_t)(argc - 1));
}
