/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_SHARD_PASSES_SHARD_PASSES_H
#define MR_SHARD_PASSES_SHARD_PASSES_H
/* The passes that auto_shard.c runs, and queries about ops for them and for the cuts into streams.
 * Private to shard/. */
#include "shard/passes/auto_shard.h"
#include "shard/passes/graph_walk.h"

/* ctx of all of them: const mr_auto_shard_opts *. */
extern const mr_pass mr__shard_files_pass, mr__shard_data_pass, mr__shard_hint_pass,
    mr__shard_ranges_pass;

/* true if the op's integer or bool parameter `name` is set to v. */
bool mr__param_is(const mr_dataset *ds, const char *name, int64_t v);
/* The op's parameter with that flag (MR_P_...); NULL: it has none. */
const mr_param *mr__param_with(const mr_dataset *ds, uint16_t flag);
/* The parameter that switches the op's shuffling on (MR_P_SHUFFLES); NULL: it has none. */
const mr_param *mr__shuffle_switch(const mr_dataset *ds);
/* true if ds reads a part of its files' records (MR_P_RANGE). */
bool mr__reads_range(const mr_dataset *ds);
/* true if the op has the trait MR_OP_RANDOM or MR_OP_REORDERS, and is switched on. */
bool mr__shuffles(const mr_dataset *ds, uint32_t trait);
/* True if it draws random numbers and its parameters have no seed. */
bool mr__wants_seed(const mr_dataset *ds);
/* True if a node of the graph does. */
bool mr__any_wants_seed(mr_dataset *ds);
/* Adds a "warning" decision and logs it. */
mr_code mr__warn(mr_explanation *e, const char *op, mr_status *st, const char *fmt, ...)
    MR_PRINTF(4, 5);
/* Returns input (taken) with the worker's shard above it. */
mr_dataset *mr__insert_shard(mr_dataset *input, const mr_auto_shard_opts *o);
/* The first node, from the sink, without MR_OP_SHARD_BELOW (below the trailing ops). */
mr_dataset *mr__below_trailing(mr_dataset *ds);
/* Finds ops whose order may differ between workers: warns of each op between the shard and the
 * sources that cannot reproduce its output. */
mr_code mr__warn_of_disorder(mr_dataset *ds, mr_explanation *e, mr_status *st) MR_NODISCARD;
/* *out = ds without its trailing prefetches (options stay); *elements = their sum, or MR_AUTO. */
mr_code mr__absorb_prefetch(mr_dataset *ds, mr_dataset **out, int64_t *elements, mr_explanation *e,
                            mr_status *st) MR_NODISCARD;
/* *out = ds without the ops that keep elements in files: their inputs take their places. */
mr_code mr__without_files(mr_dataset *ds, mr_dataset **out, mr_status *st) MR_NODISCARD;
#endif
