/* SPDX-License-Identifier: Apache-2.0 */
/* millrace index: where the records of TFRecord files lie. */
#include <inttypes.h>

#include "cli/cli.h"
#include "pipeline/formats/record_index.h"
#include "pipeline/memory/alloc.h"

static int run(int argc, char **argv)
{
    cli_run r = {0};
    mr_record_index_opts o = {0};
    const cli_flag flags[] = {{.name = "compact",
                               .kind = CLI_SWITCH,
                               .value = &o.compact,
                               .help = "write the binary form, which is smaller and opens faster"},
                              {.name = "v",
                               .kind = CLI_SWITCH,
                               .value = &r.verbose,
                               .help = "print the number of records of each file"},
                              {0}};
    const cli_flag *const tables[] = {flags, NULL};
    const char **files = cli_words(argc);
    size_t n;
    int status = cli_parse(&cli_index, tables, argc, argv, files, &n);
    if (status < 0 && n == 0)
        status = cli_usage(&cli_index, "a file is wanted");
    if (status < 0) {
        status = CLI_OK;
        cli_run_start(&r);
        cli_catch_termination();
        cli_catch_hangup();
        o.cancel = cli_cancel();
        for (size_t i = 0; i < n && !cli_interrupted(); i++) {
            mr_status st;
            int64_t records;
            mr_code rc = mr_record_index_write(files[i], &o, &records, &st);
            if (rc != MR_OK && !cli_interrupted())
                status = cli_fail(&st, CLI_FAILED);
            else if (rc == MR_OK && r.verbose)
                fprintf(stderr, "millrace index: %s: %" PRId64 " records\n", files[i], records);
        }
    }
    mr_free(files);
    return status;
}

const cli_command cli_index = {
    .name = "index",
    .summary = "writes indexes of TFRecord files, for going to any record at once",
    .usage = "FILE... [--compact] [-v]",
    .details =
        "Writes FILE.idx beside each FILE: a line for each record, its byte offset and its\n"
        "size with its framing, as other tools write it. Pipelines find it there by themselves.",
    .run = run,
};
