/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_WIRE_TLS_H
#define MR_TRANSPORT_WIRE_TLS_H
/* TLS 1.3 for connections between hosts (docs/tls.md). A daemon with a certificate accepts TLS
 * only; the side that connects verifies the daemon's certificate and its name.
 *
 * since    0.2 */
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Files in PEM form. A field that is NULL is that of the environment: MILLRACE_TLS_CERT, _KEY, _CA,
 * _CLIENT_CA, _NAME. */
typedef struct mr_tls_opts {
    bool enabled; /* connects by TLS, even without a CA: the system's are trusted then; also if
                     MILLRACE_TLS is 1 */
    const char *cert, *key; /* this side's certificate, with those that lead to its CA, and its key.
                               With them a daemon accepts TLS only; the side that connects presents
                               them if the other one asks for a certificate */
    const char *client_ca;  /* a daemon accepts only peers with a certificate of this CA */
    const char *ca;         /* connects by TLS, to peers with a certificate of this CA */
    const char *name;       /* that their certificates must have; NULL: the host connected to */
} mr_tls_opts;

#ifdef __cplusplus
}
#endif
#endif
