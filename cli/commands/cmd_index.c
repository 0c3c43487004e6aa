/* SPDX-License-Identifier: Apache-2.0 */
/* millrace index: writes the positions of the records of TFRecord files. */
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include <millrace/pipeline/files/glob.h>
#include <millrace/pipeline/formats/shards/data_files.h>
#include <millrace/pipeline/formats/tfrecord/record_index.h>
#include <millrace/pipeline/memory/alloc.h>
#include "../cli.h"

/* The exit status so far, after one more file. */
static int index_file(const char *path, const mr_record_index_opts *o, bool verbose, int status)
{
    mr_status st;
    int64_t records;
    mr_code rc = mr_record_index_write(path, o, &records, &st);
    if (rc != MR_OK && !cli_interrupted())
        return cli_fail(&st, CLI_FAILED);
    if (rc == MR_OK && verbose)
        fprintf(stderr, "millrace index: %s: %" PRId64 " records\n", path, records);
    return status;
}

/* A file, or the matches of a pattern that the shell did not expand. */
static int index_files(const char *name, const mr_record_index_opts *o, bool verbose, int status)
{
    mr_status st;
    char **paths;
    size_t n;
    if (!mr_glob_is_pattern(name) || access(name, F_OK) == 0)
        return index_file(name, o, verbose, status);
    if (mr_data_files(&name, 1, &paths, &n, &st) != MR_OK)
        return cli_fail(&st, CLI_FAILED);
    for (size_t i = 0; i < n && !cli_interrupted(); i++)
        status = index_file(paths[i], o, verbose, status);
    mr_glob_free(paths, n);
    return status;
}

/* The shell's d-* also matches indexes that were written before. */
static bool is_index_of(const char *name, const char *const *files, size_t n)
{
    size_t size = strlen(name), stem = size > 4 ? size - 4 : 0;
    for (size_t i = 0; i < n && strcmp(name + stem, ".idx") == 0; i++)
        if (strncmp(files[i], name, stem) == 0 && !files[i][stem])
            return true;
    return false;
}

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
        status = cli_usage(&cli_index, "expected at least one file");
    for (size_t i = 0; i < n && status < 0; i++)
        if (strcmp(files[i], "-") == 0)
            status = cli_usage(&cli_index,
                               "an index is written next to its file, which standard input is not");
    if (status < 0) {
        status = CLI_OK;
        cli_run_start(&r);
        cli_catch_termination();
        cli_catch_hangup();
        o.cancel = cli_cancel();
        for (size_t i = 0; i < n && !cli_interrupted(); i++)
            if (!is_index_of(files[i], files, n))
                status = index_files(files[i], &o, r.verbose, status);
    }
    mr_free(files);
    return status;
}

const cli_command cli_index = {
    .name = "index",
    .summary = "writes indexes of TFRecord files, for random access to records",
    .usage = "FILE... [--compact] [-v]",
    .details =
        "Writes FILE.idx next to each FILE: a line for each record with its byte offset and its\n"
        "size including framing, as other tools write it. Pipelines find it automatically.\n"
        "A quoted pattern stands for the files that a pipeline would read for it.",
    .run = run,
};
