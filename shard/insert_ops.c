/* SPDX-License-Identifier: Apache-2.0 */
/* The ops that rewrites insert, made from values by the op table. */
#include "shard/shard_passes.h"

#include <string.h>

enum { MAX_PARAMS = 16 };

typedef struct argument {
    const char *name;
    mr_value value;
} argument;

static mr_dataset *make(const char *name, mr_dataset *input, const argument *args, size_t n)
{
    const mr_op *op = mr_op_find(name, strlen(name));
    mr_value values[MAX_PARAMS] = {{0}};
    mr_status st;
    if (!op) {
        mr_dataset_unref(input);
        mr_fail(&st, MR_UNIMPLEMENTED, "this build has no op '%s', which the rewrite inserts",
                name);
        return mr_dataset_fail(&st);
    }
    for (size_t i = 0; i < MAX_PARAMS && op->params[i].name; i++)
        for (size_t k = 0; k < n; k++)
            if (strcmp(op->params[i].name, args[k].name) == 0)
                values[i] = args[k].value;
    return mr_dataset_from_values(op, values, &input, 1);
}

#define INT(v)                                                                                     \
    {                                                                                              \
        .kind = MR_V_INT, .i = (v)                                                                 \
    }
#define BOOL(v)                                                                                    \
    {                                                                                              \
        .kind = MR_V_BOOL, .i = (v)                                                                \
    }

mr_dataset *mr__insert_shard(mr_dataset *input, const mr_auto_shard_opts *o)
{
    const argument args[] = {{"num_shards", INT(o->num_workers)},
                             {"index", INT(o->index)},
                             {"require_non_empty", BOOL(true)}};
    return make("shard", input, args, 3);
}

mr_dataset *mr__insert_slices(mr_dataset *input, int64_t n)
{
    return make("replica_slices", input, &(argument){"n", INT(n)}, 1);
}

mr_dataset *mr__insert_shuffle(mr_dataset *input, int64_t buffer_size, const mr_value *seed)
{
    const argument args[] = {{"buffer_size", INT(buffer_size)}, {"seed", *seed}};
    return make("shuffle", input, args, 2);
}
