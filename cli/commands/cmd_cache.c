/* SPDX-License-Identifier: Apache-2.0 */
/* millrace cache: shows and shrinks a directory of cached objects. */
#include <inttypes.h>
#include <string.h>

#include <millrace/pipeline/memory/alloc.h>
#include <millrace/pipeline/remote/object_cache.h>
#include "../cli.h"

static bool is_complete(const mr_cached_object *o)
{
    return o->cached_bytes == o->size;
}

static void print_json(const mr_object_cache *c)
{
    fputs("{\"directory\": ", stdout);
    cli_print_string(stdout, c->directory, strlen(c->directory));
    printf(", \"bytes\": %" PRId64 ", \"limit\": %" PRId64 ", \"objects\": [", c->bytes, c->limit);
    for (size_t i = 0; i < c->n_objects; i++) {
        const mr_cached_object *o = &c->objects[i];
        fputs(i ? ", {\"url\": " : "{\"url\": ", stdout);
        cli_print_string(stdout, o->url, strlen(o->url));
        fputs(", \"etag\": ", stdout);
        cli_print_string(stdout, o->etag, strlen(o->etag));
        printf(", \"size\": %" PRId64 ", \"cached_bytes\": %" PRId64 ", \"complete\": %s}", o->size,
               o->cached_bytes, is_complete(o) ? "true" : "false");
    }
    puts("]}");
}

static void print_text(const mr_object_cache *c)
{
    char url[4 * 4096];
    printf("%s: %.1f of %.1f MiB, %zu object%s\n", c->directory, (double)c->bytes / (1 << 20),
           (double)c->limit / (1 << 20), c->n_objects, c->n_objects == 1 ? "" : "s");
    for (size_t i = 0; i < c->n_objects; i++) {
        const mr_cached_object *o = &c->objects[i];
        mr_text_visible(o->url, false, url, sizeof url);
        printf("%12" PRId64 " of %12" PRId64 " bytes  %s%s\n", o->cached_bytes, o->size, url,
               is_complete(o) ? "" : "  (incomplete)");
    }
}

static int show(const char *directory, bool json)
{
    mr_object_cache c;
    mr_status st;
    if (mr_object_cache_read(&c, directory, &st) != MR_OK)
        return cli_fail(&st, CLI_FAILED);
    if (json)
        print_json(&c);
    else
        print_text(&c);
    mr_object_cache_reset(&c);
    return cli_flush(CLI_OK);
}

static int run(int argc, char **argv)
{
    bool json = false, prunes = false;
    int64_t most = 0;
    const cli_flag flags[] = {
        {.name = "json", .kind = CLI_SWITCH, .value = &json, .help = "print one JSON object"},
        {.name = "prune",
         .kind = CLI_SIZE,
         .value = &most,
         .given = &prunes,
         .what = "SIZE",
         .help = "first remove the pieces used least recently, until at most "
                 "SIZE, such as 512M or 2G, is left"},
        {0}};
    const cli_flag *const tables[] = {flags, NULL};
    const char **words = cli_words(argc);
    size_t n;
    mr_status st;
    int status = cli_parse(&cli_cache, tables, argc, argv, words, &n);
    if (status < 0 && n != 1)
        status = cli_usage(&cli_cache, "expected one directory");
    if (status < 0 && prunes && mr_object_cache_prune(words[0], most, &st) != MR_OK)
        status = cli_fail(&st, CLI_FAILED);
    if (status < 0)
        status = show(words[0], json);
    mr_free(words);
    return status;
}

const cli_command cli_cache = {
    .name = "cache",
    .summary = "shows and shrinks a directory of cached remote objects",
    .usage = "DIR [--json] [--prune SIZE]",
    .details = "DIR is what --cache-dir or MILLRACE_CACHE_DIR names: a local directory with the "
               "pieces of\n"
               "objects that graphs read from URLs. Graphs may read from it meanwhile.",
    .run = run,
};
