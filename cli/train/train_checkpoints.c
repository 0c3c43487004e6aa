/* SPDX-License-Identifier: Apache-2.0 */
/* millrace checkpoints: lists a directory of checkpoints. */
#include <inttypes.h>
#include <string.h>

#include <millrace/pipeline/memory/alloc.h>
#include <millrace/trainer/loop/checkpoint.h>
#include "train.h"

static int checkpoints(int argc, char **argv);

const cli_command cli_checkpoints = {
    .name = "checkpoints",
    .summary = "lists the checkpoints of a directory and checks that they are intact",
    .usage = "DIR [--json]",
    .details =
        "An incomplete checkpoint is damaged, or unfinished because its process ended. The\n"
        "exit status is 1 if one is damaged. With --json, an object for each:\n"
        "  {\"name\": \"ckpt_3\", \"epoch\": 3, \"step\": 1407, \"loss\": 0.31, \"bytes\": 9130,\n"
        "   \"whole\": true, \"latest\": true}",
    .run = checkpoints,
};

typedef struct listing {
    bool json, damaged, found;
} listing;

static void print_json(const mr_checkpoint_info *c)
{
    fputs("{\"name\": ", stdout);
    cli_print_string(stdout, c->name, strlen(c->name));
    printf(", \"epoch\": %" PRId64 ", \"step\": %" PRId64 ", \"loss\": ", c->epoch, c->step);
    cli_print_double(stdout, c->loss);
    printf(", \"bytes\": %" PRIu64 ", \"whole\": %s, \"latest\": %s", c->bytes,
           c->whole ? "true" : "false", c->latest ? "true" : "false");
    if (!c->whole) {
        fputs(", \"why\": ", stdout);
        cli_print_string(stdout, c->why, strlen(c->why));
    }
    puts("}");
}

static mr_code print_one(void *ctx, const mr_checkpoint_info *c, mr_status *st)
{
    listing *l = ctx;
    char name[1024];
    (void)st;
    l->found = true;
    /* A hidden name belongs to a checkpoint that is being written, or was interrupted. */
    l->damaged = l->damaged || (!c->whole && c->name[0] != '.');
    if (l->json) {
        print_json(c);
        return MR_OK;
    }
    mr_text_visible(c->name, false, name, sizeof name);
    if (c->whole)
        printf("%-24s epoch %" PRId64 "  step %" PRId64 "  loss %.6g  %" PRIu64 " bytes%s\n", name,
               c->epoch, c->step, c->loss, c->bytes, c->latest ? "  (latest)" : "");
    else
        printf("%-24s not whole: %s\n", name, c->why);
    return MR_OK;
}

static int checkpoints(int argc, char **argv)
{
    listing l = {.json = false};
    const cli_flag flags[] = {{.name = "json",
                               .kind = CLI_SWITCH,
                               .value = &l.json,
                               .help = "print one object per checkpoint"},
                              {0}};
    const cli_flag *const tables[] = {flags, NULL};
    const char **rest = cli_words(argc);
    size_t n;
    mr_status st;
    int status = cli_parse(&cli_checkpoints, tables, argc, argv, rest, &n);
    if (status < 0 && n != 1)
        status = cli_usage(&cli_checkpoints, "give one directory");
    if (status < 0 && mr_checkpoint_list(rest[0], print_one, &l, &st) != MR_OK)
        status = cli_fail(&st, CLI_FAILED);
    if (status < 0 && !l.found)
        status = cli_error(&cli_checkpoints, CLI_OK, "no checkpoints in %s", rest[0]);
    if (status < 0)
        status = cli_flush(l.damaged ? CLI_FAILED : CLI_OK);
    mr_free(rest);
    return status;
}
