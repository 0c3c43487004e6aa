/* SPDX-License-Identifier: Apache-2.0 */
/* Whether data can be read, before hours of training come to the place where they are. */
#include <string.h>
#include "pipeline/files/glob.h"
#include "pipeline/formats/shards/data_files.h"
#include "pipeline/graph/rewrite.h"
#include "trainer/loop/feed.h"
#include "trainer/loop/fit.h"

static mr_code look_up(void *ctx, const char *name, mr_status *st)
{
    char **paths;
    size_t n;
    (void)ctx;
    if (strcmp(name, "-") == 0) /* standard input */
        return MR_OK;
    MR_TRY(mr_data_files(&name, 1, &paths, &n, st));
    mr_glob_free(paths, n);
    return MR_OK;
}

mr_code mr_check_data(mr_strategy *s, mr_dataset *ds, const mr_fit_opts *opts, mr_status *st)
{
    mr__feed feed = {0};
    mr_dataset *own;
    MR_TRY(mr__fit_data(s, ds, opts, &own, st));
    mr_code rc = mr_dataset_check(own, st);
    if (rc == MR_OK)
        rc = mr_dataset_file_names(own, look_up, NULL, st);
    if (rc == MR_OK && mr_dataset_cardinality(own) == 0)
        rc = mr_fail(st, MR_FAILED_PRECONDITION, "the data are empty: there is no batch");
    if (rc == MR_OK)
        rc = mr__feed_open(&feed, s, ds, opts, false, st);
    mr__feed_close(&feed);
    mr_dataset_unref(own);
    return rc;
}
