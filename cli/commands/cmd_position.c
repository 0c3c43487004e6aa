/* SPDX-License-Identifier: Apache-2.0 */
/* millrace position: joins the parts of an elastic job's position. */
#include <inttypes.h>
#include <string.h>

#include <millrace/pipeline/files/atomic_file.h>
#include <millrace/pipeline/files/whole_file.h>
#include <millrace/pipeline/memory/alloc.h>
#include "show.h"

typedef struct part {
    unsigned char *bytes;
    size_t size, head; /* head: bytes before the position */
    int64_t epoch;
} part;

static int read_part(const char *path, part *p)
{
    mr_status st;
    const mr_file_read_opts opts = {.most = INT32_MAX, .cancel = cli_cancel()};
    void *bytes;
    if (mr_file_read(path, &opts, &bytes, &p->size, &st) != MR_OK)
        return cli_interrupted() ? CLI_INTERRUPTED : cli_fail(&st, CLI_FAILED);
    p->bytes = bytes;
    p->head = cli_state_head(bytes, p->size, &p->epoch);
    return CLI_OK;
}

/* Writes the whole, preceded by what precedes the first part. */
static int write_whole(const part *first, const void *whole, size_t size, const char *path)
{
    mr_status st;
    unsigned char *all = mr_malloc(first->head + size);
    mr_code rc = all ? MR_OK : mr_fail_memory(&st, first->head + size, "a position");
    if (rc == MR_OK) {
        memcpy(all, first->bytes, first->head);
        memcpy(all + first->head, whole, size);
        rc = mr_file_replace(path, all, first->head + size, &st);
    }
    mr_free(all);
    return rc == MR_OK ? CLI_OK : cli_fail(&st, CLI_FAILED);
}

static int join(const char *const *files, size_t n, const part *parts, mr_position_part *views,
                const char *out)
{
    mr_status st;
    void *whole;
    size_t size;
    for (size_t i = 0; i < n; i++) {
        if (parts[i].epoch != parts[0].epoch)
            return cli_error(&cli_position, CLI_FAILED,
                             "%s was saved in pass %" PRId64 ", %s in pass %" PRId64
                             "; join the parts that all workers saved after the same step",
                             files[i], parts[i].epoch, files[0], parts[0].epoch);
        views[i] =
            (mr_position_part){parts[i].bytes + parts[i].head, parts[i].size - parts[i].head};
    }
    if (mr_dist_position_join(views, n, &whole, &size, &st) != MR_OK)
        return cli_fail(&st, CLI_FAILED);
    int status = write_whole(&parts[0], whole, size, out);
    mr_free(whole);
    return status;
}

static int join_files(const char *const *files, size_t n, const char *out)
{
    part *parts = mr_calloc(n, sizeof *parts);
    mr_position_part *views = mr_calloc(n, sizeof *views);
    int status = parts && views
                     ? CLI_OK
                     : cli_error(&cli_position, CLI_FAILED, "out of memory for %zu parts", n);
    for (size_t i = 0; i < n && status == CLI_OK; i++)
        status = read_part(files[i], &parts[i]);
    if (status == CLI_OK)
        status = join(files, n, parts, views, out);
    for (size_t i = 0; parts && i < n; i++)
        mr_free(parts[i].bytes);
    mr_free(parts);
    mr_free(views);
    return status;
}

static int run(int argc, char **argv)
{
    cli_run r = {0};
    const char *out = NULL;
    const cli_flag flags[] = {{.name = "out",
                               .kind = CLI_TEXT,
                               .value = &out,
                               .what = "FILE",
                               .help = "the file to write the joined position to"},
                              {0}};
    const cli_flag *const tables[] = {flags, NULL};
    const char **words = cli_words(argc);
    size_t n;
    int status = cli_parse(&cli_position, tables, argc, argv, words, &n);
    if (status < 0 && (n == 0 || strcmp(words[0], "join") != 0))
        status = cli_usage(&cli_position, "expected 'join'");
    if (status < 0 && n < 2)
        status = cli_usage(&cli_position, "expected at least one part");
    if (status < 0 && !out)
        status = cli_usage(&cli_position, "expected --out FILE");
    if (status < 0) {
        cli_run_start(&r);
        status = join_files(words + 1, n - 1, out);
    }
    mr_free(words);
    return status;
}

const cli_command cli_position = {
    .name = "position",
    .summary = "joins the parts of a position that the workers of an elastic job saved",
    .usage = "join PART... --out FILE",
    .details =
        "Each worker of 'show --replicas R --elastic S --save-after N --state PART' saves the\n"
        "places of its streams. Joined, they are a position from which any number of workers can\n"
        "continue. The file of a single worker needs no joining.",
    .run = run,
};
