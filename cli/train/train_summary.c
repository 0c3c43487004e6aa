/* SPDX-License-Identifier: Apache-2.0 */
/* millrace summary: the layers of a model, their shapes and parameters. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <millrace/pipeline/memory/alloc.h>
#include <millrace/trainer/exchange/saved_model.h>
#include "train.h"

static int summary(int argc, char **argv);

const cli_command cli_summary = {
    .name = "summary",
    .summary = "lists the layers of a model, their shapes and parameters",
    .usage = "MODEL --input SHAPE [--json]\n--saved DIR [--json]",
    .details = "Shapes are those of one example, the batch's axis left out. MODEL may begin with\n"
               "input(...) instead of --input.",
    .run = summary,
};

/* "28,28,1" */
static int read_shape(const char *text, int *rank, int64_t *shape)
{
    char *after;
    *rank = 0;
    for (const char *at = text;; at = after + 1) {
        errno = 0;
        long long v = strtoll(at, &after, 10);
        if (after == at || v < 1 || errno || *rank == MR_MAX_RANK || (*after && *after != ','))
            return cli_usage(&cli_summary,
                             "--input: '%s' is not a shape such as 28,28,1 of up to %d sizes", text,
                             MR_MAX_RANK);
        shape[(*rank)++] = v;
        if (!*after)
            return -1;
    }
}

static void print_shape(int rank, const int64_t *shape, const char *open, const char *close)
{
    fputs(open, stdout);
    for (int i = 0; i < rank; i++)
        printf("%s%" PRId64, i ? ", " : "", shape[i]);
    fputs(close, stdout);
}

/* Layer i of the model as users wrote it; false: part of a residual, which is shown where it
 * ends, with all its parameters. */
static bool read_layer(const mr_model *m, size_t i, mr_layer_info *out)
{
    mr_model_layer(m, i, out);
    if (strncmp(out->type, "residual_", 9) == 0)
        return false;
    mr_layer_info part;
    for (size_t open = strcmp(out->type, "residual") == 0; open > 0 && i-- > 0;) {
        mr_model_layer(m, i, &part);
        if (open == 1 && strcmp(part.type, "residual_projection") == 0)
            out->parameters += part.parameters;
        if (strcmp(part.type, "residual_begin") == 0)
            open--;
        open += strcmp(part.type, "residual") == 0;
    }
    return true;
}

static void print_json(const mr_model *m)
{
    size_t all = 0;
    const char *between = "";
    fputs("{\"layers\": [", stdout);
    for (size_t i = 0; i < mr_model_n_layers(m); i++) {
        mr_layer_info l;
        if (!read_layer(m, i, &l))
            continue;
        printf("%s{\"name\": \"%s\", \"type\": \"%s\", \"shape\": ", between, l.name, l.type);
        between = ", ";
        print_shape(l.rank, l.shape, "[", "]");
        printf(", \"parameters\": %zu}", l.parameters);
        all += l.parameters;
    }
    fputs("], ", stdout);
    for (size_t i = 0; i < mr_model_n_outputs(m) && mr_model_n_outputs(m) > 1; i++) {
        int rank;
        const int64_t *shape;
        mr_model_output_shape_of(m, i, &rank, &shape);
        printf("%s\"%s\": ", i ? ", " : "\"outputs\": {", mr_model_output_name(m, i));
        print_shape(rank, shape, "[", "]");
    }
    if (mr_model_n_outputs(m) > 1)
        fputs("}, ", stdout);
    printf("\"parameters\": %zu}\n", all);
}

static void print_table(const mr_model *m)
{
    size_t all = 0;
    int rank;
    const int64_t *shape;
    mr_model_input_shape(m, &rank, &shape);
    fputs("input ", stdout);
    print_shape(rank, shape, "(", ")\n");
    for (size_t i = 0; i < mr_model_n_layers(m); i++) {
        mr_layer_info l;
        char text[160] = "(";
        if (!read_layer(m, i, &l))
            continue;
        for (int k = 0; k < l.rank; k++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%" PRId64, k ? ", " : "",
                     l.shape[k]);
        printf("%-28s %-24s %12zu\n", l.name, strcat(text, ")"), l.parameters);
        all += l.parameters;
    }
    for (size_t i = 0; i < mr_model_n_outputs(m) && mr_model_n_outputs(m) > 1; i++) {
        mr_model_output_shape_of(m, i, &rank, &shape);
        printf("output %s ", mr_model_output_name(m, i));
        print_shape(rank, shape, "(", ")\n");
    }
    printf("parameters: %zu (%.1f KiB)\n", all, (double)all * sizeof(float) / 1024);
}

typedef struct parts {
    mr_saved *saved;
    mr_strategy *strategy;
    mr_model *model;
} parts;

static mr_code build(parts *p, const char *text, int rank, const int64_t *shape, mr_status *st)
{
    MR_TRY(mr_model_parse(&p->model, text, st));
    if (rank < 0)
        mr_model_input_shape(p->model, &rank, &shape);
    if (rank < 0)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the shape of an example is unknown: give it with --input 28,28,1");
    const char *const device = "cpu:0";
    MR_TRY(mr_strategy_mirrored(&p->strategy,
                                &(mr_strategy_opts){.devices = &device, .n_devices = 1}, st));
    if (p->saved)
        return mr_saved_build(p->saved, p->model, p->strategy, NULL, st);
    return mr_model_build(p->model, p->strategy, rank, shape, NULL, st);
}

static mr_code open_model(parts *p, const char *saved, const char *text, int rank,
                          const int64_t *shape, mr_status *st)
{
    if (!saved)
        return build(p, text, rank, shape, st);
    MR_TRY(train_of_graph("--saved", mr_saved_open(&p->saved, saved, st), st));
    mr_saved_input_shape(p->saved, &rank, &shape);
    return build(p, mr_saved_model_text(p->saved), rank, shape, st);
}

static int summary(int argc, char **argv)
{
    const char *saved = NULL, *input = NULL;
    bool json = false;
    const cli_flag flags[] = {
        {.name = "input",
         .kind = CLI_TEXT,
         .value = &input,
         .what = "SHAPE",
         .help = "the shape of an example, as in 28,28,1"},
        {.name = "saved",
         .kind = CLI_TEXT,
         .value = &saved,
         .what = "DIR",
         .help = "a saved model or checkpoint"},
        {.name = "json", .kind = CLI_SWITCH, .value = &json, .help = "print one object"},
        {0}};
    const cli_flag *const tables[] = {flags, NULL};
    const char **rest = cli_words(argc);
    size_t n;
    int rank = -1;
    int64_t shape[MR_MAX_RANK];
    parts p = {0};
    mr_status st;
    int status = cli_parse(&cli_summary, tables, argc, argv, rest, &n);
    if (status < 0 && (saved ? n > 0 || input : n != 1))
        status = cli_usage(&cli_summary, "give a model with --input, or --saved DIR");
    if (status < 0 && input)
        status = read_shape(input, &rank, shape);
    if (status < 0) {
        mr_code rc = open_model(&p, saved, saved ? NULL : rest[0], rank, shape, &st);
        if (rc != MR_OK)
            status = cli_fail(&st, rc == MR_INVALID_ARGUMENT && !saved ? CLI_USAGE : CLI_FAILED);
    }
    if (status < 0) {
        json ? print_json(p.model) : print_table(p.model);
        status = cli_flush(CLI_OK);
    }
    mr_model_free(p.model);
    mr_strategy_free(p.strategy);
    mr_saved_close(p.saved);
    mr_free(rest);
    return status;
}
