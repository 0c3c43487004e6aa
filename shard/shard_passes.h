/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_SHARD_SHARD_PASSES_H
#define MR_SHARD_SHARD_PASSES_H
/* The passes behind auto_shard.h, and what they share. Private to shard/. */
#include "shard/auto_shard.h"
#include "shard/graph_walk.h"

/* ctx of all of them: const mr_auto_shard_opts *. */
extern const mr_pass mr__shard_files_pass, mr__shard_data_pass, mr__shard_hint_pass;

/* The flag by which an op of role MR_ROLE_FILE_NAMES shuffles its names. */
#define MR__SHUFFLE_PARAM "shuffle"

/* true if the op's integer or bool parameter `name` is set to v. */
bool mr__param_is(const mr_dataset *ds, const char *name, int64_t v);
/* Adds a "warning" decision and logs it. */
mr_code mr__warn(mr_explanation *e, const char *op, mr_status *st, const char *fmt, ...)
    MR_PRINTF(4, 5);
/* input (taken) with the worker's shard above it. */
mr_dataset *mr__insert_shard(mr_dataset *input, const mr_auto_shard_opts *o);
/* true if the trailing op is stepped over at the sink: prefetch and options. */
bool mr__trails(const mr_dataset *ds);
/* Finds the order that workers may not agree on: warns of each op above the shard (towards the
 * sources) that cannot produce the same again. */
mr_code mr__warn_of_disorder(mr_dataset *ds, mr_explanation *e, mr_status *st) MR_NODISCARD;
/* *out = ds with the trailing prefetches taken off (options stay); *elements = their sum, or
 * MR_AUTO. */
mr_code mr__absorb_prefetch(mr_dataset *ds, mr_dataset **out, int64_t *elements, mr_explanation *e,
                            mr_status *st) MR_NODISCARD;
#endif
