/* SPDX-License-Identifier: Apache-2.0 */
/* millrace-service: the commands of millrace, with the ops of the data service in addition to the
 * built-in ones. */
#include <string.h>

#include <millrace/pipeline/memory/alloc.h>
#include <millrace/transport/service/service.h>
#include "service_commands.h"

/* The nodes that explain_node has printed so far. */
typedef struct explaining {
    bool json, any;
    int status;
} explaining;

static void print_stream(const explaining *x, size_t s, const mr_dataset *ds)
{
    char *text = NULL;
    mr_status st;
    /* A graph that contains C arrays has no text form. */
    mr_code rc = mr_dataset_to_text(ds, &text, &st);
    if (rc == MR_OK)
        mr_text_drop_secrets(text);
    if (x->json) {
        fputs(s ? ", " : "", stdout);
        cli_print_string(stdout, rc == MR_OK ? text : "", rc == MR_OK ? strlen(text) : 0);
    } else
        printf("  stream %zu: %s\n", s, rc == MR_OK ? text : st.message);
    mr_free(text);
}

static mr_dataset *explain_node(void *ctx, mr_dataset *node)
{
    explaining *x = ctx;
    mr_dataset **v = NULL;
    size_t n = 0;
    mr_explanation e = {0};
    mr_status st;
    if (x->status == CLI_OK && mr_service_streams(node, &v, &n, &e, &st) != MR_OK)
        x->status = cli_fail(&st, CLI_FAILED);
    if (n && x->json)
        fputs(x->any ? ", [" : "\"streams\": [[", stdout);
    else if (n)
        printf("below %s, in %zu stream%s of the service:\n", mr_dataset_op(node)->name, n,
               n == 1 ? "" : "s");
    for (size_t s = 0; s < n; s++) {
        print_stream(x, s, v[s]);
        mr_dataset_unref(v[s]);
    }
    if (n && x->json)
        putchar(']');
    for (size_t i = 0; n && !x->json && i < e.n; i++)
        printf("  %s: %s%s%s%s\n", e.v[i].what, e.v[i].detail, e.v[i].op ? " (at " : "",
               e.v[i].op ? e.v[i].op : "", e.v[i].op ? ")" : "");
    x->any = x->any || n;
    mr_explanation_reset(&e);
    mr_free(v);
    return node;
}

static int explain(mr_dataset *ds, bool json)
{
    explaining x = {.json = json, .status = CLI_OK};
    mr_dataset_unref(mr_dataset_transform(ds, explain_node, &x));
    if (x.any && json)
        fputs("], ", stdout);
    return x.status;
}

static const cli_command *const more[] = {&cli_dispatcher, &cli_worker, &cli_service, NULL};

const cli_program cli_this = {.more = more, .add_ops = mr_service_register_ops, .explain = explain};
