/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/service/client/registered.h"

#include <string.h>

#include "pipeline/memory/alloc.h"
#include "pipeline/system/fork.h"
#include "pipeline/system/name_scope.h"
#include "transport/service/request.h"
#include "transport/wire/token_file.h"

typedef struct known {
    struct known *next;
    char *service, *id;
    char *directory; /* NULL: an earlier version registered it */
    mr_dataset *ds;
} known;

static mr__lock lock = MR__LOCK_FREE;
static known *all;

static mr_code directory_of(const ProtobufCBinaryData *graph, char **out, mr_status *st)
{
    Mr__Wire__GraphDirectory *m = NULL;
    MR_TRY(
        mr__wire_unpack(&mr__wire__graph_directory__descriptor, graph->data, graph->len, &m, st));
    mr_code rc = MR_OK;
    if (*m->directory && !(*out = mr_strdup(m->directory)))
        rc = mr_fail_memory(st, strlen(m->directory), "a directory");
    mr__wire_free(m);
    return rc;
}

static mr_code ask(const char *service, const char *id, double timeout, const mr_tls_opts *tls,
                   known *k, mr_status *st)
{
    mr__request_opts opts = {.dispatcher = service, .timeout_ns = (int64_t)(timeout * 1e9)};
    Mr__Wire__Ask question = MR__WIRE__ASK__INIT;
    mr__message *m;
    question.request = 1;
    question.what = (char *)(uintptr_t) "dataset";
    question.name = (char *)(uintptr_t)id;
    MR_TRY(mr__token_open(NULL, tls, MR__TLS_CONNECTS, &opts.token, st));
    mr_code rc = mr__request(&opts, &question, &m, st);
    mr__token_free(&opts.token);
    MR_TRY(rc);
    const ProtobufCBinaryData *graph = &m->report->graph;
    rc = directory_of(graph, &k->directory, st);
    if (rc == MR_OK) {
        mr__name_scope names = mr__name_scope_get(), outer = names;
        names.of_service = true;
        if (k->directory)
            names.directory = k->directory;
        mr__name_scope_set(names);
        rc = mr_dataset_from_proto(graph->data, graph->len, &k->ds, st);
        mr__name_scope_set(outer);
    }
    mr__message_free(m);
    return rc;
}

static mr_code find(const char *service, const char *id, double timeout, const mr_tls_opts *tls,
                    const known **out, mr_status *st)
{
    for (const known *k = all; k; k = k->next)
        if (strcmp(k->service, service) == 0 && strcmp(k->id, id) == 0) {
            *out = k;
            return MR_OK;
        }
    known *k = mr_calloc(1, sizeof *k);
    mr_code rc = MR_OK;
    if (!k || !(k->service = mr_strdup(service)) || !(k->id = mr_strdup(id)))
        rc = mr_fail_memory(st, sizeof *k, "a dataset");
    if (rc == MR_OK)
        rc = ask(service, id, timeout, tls, k, st);
    if (rc != MR_OK) {
        mr_free(k ? k->directory : NULL);
        mr_free(k ? k->service : NULL);
        mr_free(k ? k->id : NULL);
        mr_free(k);
        return rc;
    }
    k->next = all;
    all = k;
    *out = k;
    return MR_OK;
}

mr_code mr__registered_dataset(const char *service, const char *id, double timeout,
                               const mr_tls_opts *tls, mr_dataset **out, const char **directory,
                               mr_status *st)
{
    const known *k = NULL;
    mr__lock_take(&lock);
    mr_code rc = find(service, id, timeout, tls, &k, st);
    mr__lock_release(&lock);
    if (rc == MR_OK) {
        *out = k->ds;
        *directory = k->directory;
    }
    return rc;
}
