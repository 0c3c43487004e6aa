/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_WIRE_LIBSSL_H
#define MR_TRANSPORT_WIRE_LIBSSL_H
/* The functions of libssl, which is loaded when TLS is first used. Those of libcrypto are linked.
 *
 * thread   any */
#include <openssl/ssl.h>

#include "pipeline/system/late_library.h"

#define MR__LIBSSL(X)                                                                              \
    X(TLS_method)                                                                                  \
    X(SSL_CTX_new)                                                                                 \
    X(SSL_CTX_free)                                                                                \
    X(SSL_CTX_ctrl)                                                                                \
    X(SSL_CTX_set_ciphersuites)                                                                    \
    X(SSL_CTX_set_default_passwd_cb)                                                               \
    X(SSL_CTX_use_certificate_chain_file)                                                          \
    X(SSL_CTX_use_PrivateKey_file)                                                                 \
    X(SSL_CTX_get0_certificate)                                                                    \
    X(SSL_CTX_load_verify_file)                                                                    \
    X(SSL_CTX_set_default_verify_paths)                                                            \
    X(SSL_set_verify)                                                                              \
    X(SSL_new)                                                                                     \
    X(SSL_free)                                                                                    \
    X(SSL_ctrl)                                                                                    \
    X(SSL_set_bio)                                                                                 \
    X(SSL_set_ex_data)                                                                             \
    X(SSL_get_ex_data)                                                                             \
    X(SSL_get_ex_data_X509_STORE_CTX_idx)                                                          \
    X(SSL_set_accept_state)                                                                        \
    X(SSL_set_connect_state)                                                                       \
    X(SSL_get0_param)                                                                              \
    X(SSL_get1_peer_certificate)                                                                   \
    X(SSL_set1_host)                                                                               \
    X(SSL_do_handshake)                                                                            \
    X(SSL_read_ex)                                                                                 \
    X(SSL_write_ex)                                                                                \
    X(SSL_key_update)                                                                              \
    X(SSL_shutdown)                                                                                \
    X(SSL_get_error)                                                                               \
    X(SSL_export_keying_material)
typedef struct mr__libssl {
    MR__LIBSSL(MR__LATE_MEMBER)
} mr__libssl;
extern mr__libssl mr__ssl; /* valid after mr__libssl_need */

/* errors   as mr__late_library_need */
mr_code mr__libssl_need(mr_status *st) MR_NODISCARD;
#endif
