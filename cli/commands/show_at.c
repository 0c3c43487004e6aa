/* SPDX-License-Identifier: Apache-2.0 */
/* show --at: elements by number. */
#include <errno.h>
#include <stdlib.h>

#include <millrace/pipeline/engine/random_access.h>
#include <millrace/pipeline/memory/alloc.h>
#include "../cli.h"
#include "show.h"

/* The numbers in "3,-1,0". *numbers is owned. Returns -1, or an exit status. */
static int parse(const show_opts *o, int64_t **numbers, size_t *n)
{
    const char *text = o->at;
    size_t most = 1;
    for (const char *c = text; *c; c++)
        most += *c == ',';
    *n = 0;
    *numbers = mr_malloc(most * sizeof **numbers);
    if (!*numbers) {
        mr_status st;
        mr_fail_memory(&st, most * sizeof **numbers, "the numbers of --at");
        return cli_fail(&st, CLI_FAILED);
    }
    for (const char *at = text;; at++) {
        char *end;
        errno = 0;
        long long v = strtoll(at, &end, 10);
        if (errno || end == at || (*end && *end != ','))
            return cli_usage(o->cmd, "--at needs numbers such as 0,17,-1, not '%s'", text);
        (*numbers)[(*n)++] = v;
        at = end;
        if (!*at)
            return -1;
    }
}

int cli_show_at(const show_opts *o, mr_dataset *ds)
{
    mr_random_access *ra = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_status st;
    int64_t *numbers = NULL;
    size_t n = 0, done = 0;
    int status = parse(o, &numbers, &n);
    if (status < 0) {
        mr_code rc = mr_random_access_open(&ra, ds, &o->run.opts, &st);
        while (rc == MR_OK && done < n) {
            rc = mr_random_access_at(ra, numbers + done, n - done, &b, &st);
            for (size_t i = 0; rc == MR_OK && i < b.rows; i++, done++)
                rc = cli_print_line(stdout, mr_dataset_spec(ds), &b, i, &o->run.opts, &st);
        }
        status = rc == MR_OK         ? CLI_OK
                 : cli_interrupted() ? CLI_INTERRUPTED
                                     : cli_fail(&st, CLI_FAILED);
    }
    mr_block_reset(&b);
    mr_random_access_close(ra);
    mr_free(numbers);
    return cli_flush(status);
}
