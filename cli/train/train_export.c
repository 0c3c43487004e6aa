/* SPDX-License-Identifier: Apache-2.0 */
/* millrace export: a saved model as ONNX. */
#include <millrace/pipeline/memory/alloc.h>
#include <millrace/trainer/model/onnx.h>
#include <millrace/trainer/exchange/saved_model.h>
#include "train.h"

static int export(int argc, char **argv);

const cli_command cli_export = {
    .name = "export",
    .summary = "writes a saved model as ONNX, for other programs",
    .usage = "--saved DIR --onnx FILE",
    .details =
        "The ONNX file (opset 17) has one input \"input\" and one output \"output\", whose first\n"
        "dimension is \"batch\", in the model's own layout: images are [height, width, channels].",
    .run = export,
};

typedef struct parts {
    mr_saved *saved;
    mr_strategy *strategy;
    mr_model *model;
} parts;

static mr_code export_model(parts *p, const char *saved, const char *file, mr_status *st)
{
    const char *const device = "cpu:0";
    MR_TRY(train_of_graph("--saved", mr_saved_open(&p->saved, saved, st), st));
    MR_TRY(mr_model_parse(&p->model, mr_saved_model_text(p->saved), st));
    MR_TRY(mr_strategy_mirrored(&p->strategy,
                                &(mr_strategy_opts){.devices = &device, .n_devices = 1}, st));
    MR_TRY(
        train_of_graph("--saved", mr_saved_build(p->saved, p->model, p->strategy, NULL, st), st));
    return train_of_graph("--onnx", mr_onnx_export(p->model, file, st), st);
}

static int export(int argc, char **argv)
{
    const char *saved = NULL, *onnx = NULL;
    const cli_flag flags[] = {
        {.name = "saved",
         .kind = CLI_TEXT,
         .value = &saved,
         .what = "DIR",
         .help = "a saved model, a checkpoint, or a directory of checkpoints"},
        {.name = "onnx",
         .kind = CLI_TEXT,
         .value = &onnx,
         .what = "FILE",
         .help = "the file that is written"},
        {0}};
    const cli_flag *const tables[] = {flags, NULL};
    const char **rest = cli_words(argc);
    size_t n;
    parts p = {0};
    mr_status st;
    int status = cli_parse(&cli_export, tables, argc, argv, rest, &n);
    if (status < 0 && n)
        status = cli_usage(&cli_export, "unexpected '%s'", rest[0]);
    if (status < 0 && (!saved || !onnx))
        status = cli_usage(&cli_export, "%s is missing", saved ? "--onnx FILE" : "--saved DIR");
    if (status < 0)
        status = export_model(&p, saved, onnx, &st) == MR_OK ? cli_flush(CLI_OK)
                                                             : cli_fail(&st, CLI_FAILED);
    mr_model_free(p.model);
    mr_strategy_free(p.strategy);
    mr_saved_close(p.saved);
    mr_free(rest);
    return status;
}
