/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a tf.train.Example, parsed with a plan of all kinds of features, and visited. A
 * record must read the same after itself, where its features are found by guess, as before. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/formats/tfrecord/example.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static mr_code look(void *ctx, const mr_example_value *v, mr_status *st)
{
    size_t *n = ctx;
    (void)st;
    *n += v->n;
    return MR_OK;
}

static void note(void *ctx, size_t row, const mr_status *st)
{
    (void)st;
    ((bool *)ctx)[row] = true;
}

static void parse_again(mr_bytes record)
{
    static mr_example_plan *plan;
    static const float zero;
    static const mr_example_feature f[] = {
        {.name = "image", .name_size = 5, .dtype = MR_STRING},
        {.name = "label", .name_size = 5, .dtype = MR_INT64, .rank = 1, .shape = {2}},
        {.name = "b",
         .name_size = 1,
         .dtype = MR_FLOAT32,
         .default_values = &zero,
         .n_default_values = 1}};
    mr_array c[3];
    bool bad[2] = {false};
    mr_bytes records[2] = {record, record};
    if (!plan && mr_example_plan_new(&plan, f, 3, NULL) != MR_OK)
        abort();
    if (mr_example_parse(plan, records, 2, NULL, c, note, bad, NULL) != MR_OK)
        return;
    if (bad[0] != bad[1])
        abort();
    for (int i = 0; i < 3; i++) {
        if (memcmp(mr_array_at(&c[i], 0), mr_array_at(&c[i], 1), mr_array_row_bytes(&c[i])) != 0)
            abort();
        mr_array_reset(&c[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static mr_example_plan *plan;
    static const int64_t zero[2];
    static const mr_example_feature f[] = {
        {.name = "image", .name_size = 5, .dtype = MR_STRING, .ragged = true},
        {.name = "label",
         .name_size = 5,
         .dtype = MR_INT64,
         .rank = 1,
         .shape = {2},
         .default_values = zero,
         .n_default_values = 2},
        {.name = "a", .name_size = 1, .dtype = MR_INT64, .ragged = true},
        {.name = "b", .name_size = 1, .dtype = MR_FLOAT32, .ragged = true},
        {.name = "one",
         .name_size = 3,
         .dtype = MR_INT64,
         .default_values = zero,
         .n_default_values = 1}};
    mr_array c[5];
    size_t n = 0;
    if (!plan && mr_example_plan_new(&plan, f, 5, NULL) != MR_OK)
        abort();
    mr_bytes records[2] = {{(const char *)data, size}, {(const char *)data, size / 2}};
    if (mr_example_parse(plan, records, 2, NULL, c, NULL, NULL, NULL) == MR_OK)
        for (int i = 0; i < 5; i++)
            mr_array_reset(&c[i]);
    parse_again(records[0]);
    if (mr_example_visit(data, size, look, &n, NULL) == MR_OK && n > 8 * size + 8)
        abort();
    return 0;
}
