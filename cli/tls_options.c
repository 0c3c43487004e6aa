/* SPDX-License-Identifier: Apache-2.0 */
/* The options of TLS. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

void cli_tls_flags(mr_tls_opts *o, bool accepts, bool connects, cli_flag *table)
{
    const cli_flag own[] = {
        {.name = "tls-cert",
         .kind = CLI_TEXT,
         .value = &o->cert,
         .what = "FILE",
         .help = accepts ? "accept TLS only, with the certificate in FILE; default: "
                           "$MILLRACE_TLS_CERT"
                         : "certificate to present where one is required; default: "
                           "$MILLRACE_TLS_CERT"},
        {.name = "tls-key",
         .kind = CLI_TEXT,
         .value = &o->key,
         .what = "FILE",
         .help = "key of that certificate; default: $MILLRACE_TLS_KEY"}};
    const cli_flag of_clients[] = {
        {.name = "tls-client-ca",
         .kind = CLI_TEXT,
         .value = &o->client_ca,
         .what = "FILE",
         .help = "require a certificate of the CA in FILE from every peer that connects; default: "
                 "$MILLRACE_TLS_CLIENT_CA"}};
    const cli_flag of_services[] = {
        {.name = "tls",
         .kind = CLI_SWITCH,
         .value = &o->enabled,
         .help = "connect by TLS, and trust the system's CAs"},
        {.name = "tls-ca",
         .kind = CLI_TEXT,
         .value = &o->ca,
         .what = "FILE",
         .help = "connect by TLS, and trust the CA in FILE only; default: $MILLRACE_TLS_CA"},
        {.name = "tls-name",
         .kind = CLI_TEXT,
         .value = &o->name,
         .what = "NAME",
         .help = "name that certificates must have; default: the host connected to"}};
    size_t n = 0;
    memcpy(table + n, own, sizeof own);
    n += sizeof own / sizeof *own;
    if (accepts)
        table[n++] = of_clients[0];
    if (connects) {
        memcpy(table + n, of_services, sizeof of_services);
        n += sizeof of_services / sizeof *of_services;
    }
    table[n] = (cli_flag){0};
}

void cli_tls_export(const mr_tls_opts *o)
{
    const char *const pairs[][2] = {
        {"MILLRACE_TLS_CERT", o->cert},           {"MILLRACE_TLS_KEY", o->key},
        {"MILLRACE_TLS_CLIENT_CA", o->client_ca}, {"MILLRACE_TLS_CA", o->ca},
        {"MILLRACE_TLS_NAME", o->name},           {"MILLRACE_TLS", o->enabled ? "1" : NULL}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (pairs[i][1])
            setenv(pairs[i][0], pairs[i][1], 1);
}

void cli_tls_heed_hangup(const mr_tls_opts *o, void (*reload)(int signal))
{
    const char *cert = o->cert ? o->cert : getenv("MILLRACE_TLS_CERT");
    struct sigaction act = {.sa_handler = reload, .sa_flags = SA_RESTART};
    sigemptyset(&act.sa_mask);
    if (cert && *cert)
        sigaction(SIGHUP, &act, NULL);
}
