/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_CLI_SHOW_H
#define MR_CLI_SHOW_H
/* The two halves of `millrace show`: a plain pipeline, and one distributed over replicas. */
#include "distributed.h"

typedef struct show_opts {
    const cli_command *cmd; /* for messages */
    cli_run run;
    cli_distribution distribution;
    int64_t limit, epochs, save_after;
    bool has_limit, has_save_after, by_name, spec;
    const char *state, *restore, *ledger, *at;
} show_opts;

int cli_show_replicas(const show_opts *o, const char *text, size_t size);

/* Prints the elements whose numbers are o->at. */
int cli_show_at(const show_opts *o, mr_dataset *ds);

/* ---- show_state.c ---- */

/* Prints it on a line. */
int cli_show_spec(const show_opts *o, const mr_spec *spec);
/* Reads the position of --restore. *epoch = number of passes completed before it. */
int cli_load_state(const show_opts *o, void **bytes, size_t *size, int64_t *epoch);
/* The size of what precedes a position in a state file, and the passes that it counts in *epoch; 0:
 * nothing, *epoch is 0. */
size_t cli_state_head(const void *bytes, size_t size, int64_t *epoch);
/* Warns that the data ended `left` elements (or steps) before that of --save-after. */
void cli_warn_of_end(const show_opts *o, int64_t left);
/* Writes a position that mr_..._save returned with rc (or reports its error) to the file of
 * --state. Frees bytes. */
int cli_store_state(const show_opts *o, mr_code rc, void *bytes, size_t size, int64_t epoch,
                    mr_status *st);
#endif
