/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/google_sources.h"

#include <inttypes.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <string.h>

#include "pipeline/remote/secret_file.h"
#include "pipeline/remote/small_request.h"
#include "pipeline/remote/url.h"
#include "pipeline/system/late_library.h"
#include "pipeline/system/system.h"

#define CRYPTO(X)                                                                                  \
    X(BIO_new_mem_buf)                                                                             \
    X(BIO_free)                                                                                    \
    X(PEM_read_bio_PrivateKey)                                                                     \
    X(EVP_PKEY_free)                                                                               \
    X(EVP_MD_CTX_new)                                                                              \
    X(EVP_MD_CTX_free)                                                                             \
    X(EVP_DigestSignInit)                                                                          \
    X(EVP_DigestSign)                                                                              \
    X(EVP_sha256)                                                                                  \
    X(EVP_EncodeBlock)
static struct {
    CRYPTO(MR__LATE_MEMBER)
} crypto;
static mr__late_library libcrypto = MR__LATE_LIBRARY("requests for Google's tokens are signed",
                                                     "libcrypto.so.3", "libssl3", CRYPTO, crypto);

enum { TOKEN_MS = 30000, TOKEN_TRIES = 4, FIRST_MS = 1000, MOST_SIGNATURE = 2048, HOUR = 3600 };
#define SECOND    INT64_C(1000000000)
#define TOKEN_URL "https://oauth2.googleapis.com/token"
#define SCOPE     "https://www.googleapis.com/auth/devstorage.read_write"

static const char *member(const json_t *root, const char *name)
{
    const char *v = json_string_value(json_object_get(root, name));
    return v && *v ? v : NULL;
}

/* {"access_token": ..., "expires_in": seconds} */
static mr_code take_token(const mr__small_answer *a, mr__credentials *out, mr_status *st)
{
    json_t *root = json_loadb(a->text, a->size, 0, NULL);
    const char *token = member(root, "access_token");
    json_int_t seconds = json_integer_value(json_object_get(root, "expires_in"));
    mr_code rc = MR_OK;
    if (!token || strpbrk(token, "\r\n") || seconds <= 0 || seconds > 1000 * HOUR)
        rc = mr_fail(st, MR_DATA_LOSS,
                     "the answer is not JSON with access_token and expires_in, a number");
    else if (!(out->token = mr_strdup(token)))
        rc = mr_fail_memory(st, strlen(token), "a token");
    else
        out->ends_at = mr__clock_ns(CLOCK_REALTIME) + seconds * SECOND;
    json_decref(root);
    return rc;
}

/* Sends the form, owned, to the server of tokens. */
static mr_code ask_server(const char *url, char *form, mr__credentials *out, mr_status *st)
{
    mr__small_answer a = {0};
    mr_code rc =
        form ? mr__small_request_send(&(mr__small_request){.url = url,
                                                           .body = form,
                                                           .authorities = mr__authorities(NULL),
                                                           .limit_ms = TOKEN_MS,
                                                           .tries = TOKEN_TRIES,
                                                           .stops = mr__access_stops},
                                      &a, st)
             : mr_fail_memory(st, 0, "a request for a token");
    if (rc == MR_OK && a.status != 200) {
        json_t *root = json_loadb(a.text, a.size, 0, NULL);
        const char *error = member(root, "error");
        rc = mr_fail(st, a.status >= 500 ? MR_UNAVAILABLE : MR_PERMISSION_DENIED,
                     "the server of tokens answered %ld%s%.64s%s", a.status, error ? " (" : "",
                     error ? error : "", error ? ")" : "");
        json_decref(root);
    } else if (rc == MR_OK)
        rc = take_token(&a, out, st);
    else
        mr_status_prefix(st, "the server of tokens");
    mr__small_answer_reset(&a);
    mr__secret_free(form);
    return rc;
}

/* ---- service accounts ---- */

/* Base64 for URLs, without padding. Owned; NULL: out of memory. */
static char *encode(const void *data, size_t n)
{
    char *text = mr_malloc(n / 3 * 4 + 5);
    if (!text)
        return NULL;
    int size = crypto.EVP_EncodeBlock((unsigned char *)text, data, (int)n);
    while (size && text[size - 1] == '=')
        size--;
    text[size] = '\0';
    for (char *c = text; *c; c++)
        *c = *c == '+' ? '-' : *c == '/' ? '_' : *c;
    return text;
}

/* No terminal is asked for a password. */
static int no_password(char *text, int size, int writes, void *ctx)
{
    (void)text, (void)size, (void)writes, (void)ctx;
    return -1;
}

/* Signs the text with RSA and SHA-256. *n: in: the room. */
static mr_code sign(const char *key, const char *text, unsigned char *out, size_t *n, mr_status *st)
{
    BIO *bio = crypto.BIO_new_mem_buf(key, -1);
    EVP_PKEY *pair = bio ? crypto.PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL) : NULL;
    EVP_MD_CTX *digest = crypto.EVP_MD_CTX_new();
    bool good =
        pair && digest &&
        crypto.EVP_DigestSignInit(digest, NULL, crypto.EVP_sha256(), NULL, pair) == 1 &&
        crypto.EVP_DigestSign(digest, out, n, (const unsigned char *)text, strlen(text)) == 1;
    crypto.EVP_MD_CTX_free(digest);
    crypto.EVP_PKEY_free(pair);
    crypto.BIO_free(bio);
    return good ? MR_OK
                : mr_fail(st, MR_INVALID_ARGUMENT,
                          "private_key is not an RSA key in PEM, without "
                          "a password");
}

/* The text of JSON, at most 2 KiB, encoded. Owned; NULL: out of memory. */
static char *encode_json(json_t *root)
{
    char text[2048];
    size_t n = root ? json_dumpb(root, text, sizeof text, JSON_COMPACT) : 0;
    json_decref(root);
    return n && n <= sizeof text ? encode(text, n) : NULL;
}

static mr_code make_assertion(const json_t *account, const char *url, char **out, mr_status *st)
{
    const char *email = member(account, "client_email"), *key = member(account, "private_key");
    const char *number = member(account, "private_key_id");
    unsigned char signature[MOST_SIGNATURE];
    size_t n = sizeof signature;
    json_int_t now = mr__clock_ns(CLOCK_REALTIME) / SECOND;
    if (!email || !key)
        return mr_fail(st, MR_INVALID_ARGUMENT, "it has no client_email or no private_key");
    MR_TRY(mr__late_library_need(&libcrypto, st));
    char *head =
        encode_json(json_pack("{s:s,s:s,s:s*}", "alg", "RS256", "typ", "JWT", "kid", number));
    char *claims = encode_json(json_pack("{s:s,s:s,s:s,s:I,s:I}", "iss", email, "scope", SCOPE,
                                         "aud", url, "iat", now, "exp", now + HOUR));
    char *text = head && claims ? mr_strf("%s.%s", head, claims) : NULL;
    mr_code rc =
        text ? sign(key, text, signature, &n, st) : mr_fail_memory(st, 0, "a request for a token");
    char *coded = rc == MR_OK ? encode(signature, n) : NULL;
    *out = coded ? mr_strf("%s.%s", text, coded) : NULL;
    if (rc == MR_OK && !*out)
        rc = mr_fail_memory(st, 0, "a request for a token");
    mr_free(head);
    mr_free(claims);
    mr_free(text);
    mr_free(coded);
    return rc;
}

static mr_code ask_for_account(const json_t *account, const char *url, mr__credentials *out,
                               mr_status *st)
{
    char *assertion = NULL;
    MR_TRY(make_assertion(account, url, &assertion, st));
    char *form = mr_strf("grant_type=urn%%3Aietf%%3Aparams%%3Aoauth%%3Agrant-type%%3Ajwt-bearer"
                         "&assertion=%s",
                         assertion);
    mr__secret_free(assertion);
    return ask_server(url, form, out, st);
}

/* ---- users ---- */

static mr_code ask_for_user(const json_t *user, const char *url, mr__credentials *out,
                            mr_status *st)
{
    static const char *const names[] = {"client_id", "client_secret", "refresh_token"};
    char *form = mr_strdup("grant_type=refresh_token");
    for (size_t i = 0; i < sizeof names / sizeof *names && form; i++) {
        const char *v = member(user, names[i]);
        if (!v) {
            mr__secret_free(form);
            return mr_fail(st, MR_INVALID_ARGUMENT, "it has no %s", names[i]);
        }
        char *coded = mr__url_encode(v, "");
        char *longer = coded ? mr_strf("%s&%s=%s", form, names[i], coded) : NULL;
        mr__secret_free(coded);
        mr__secret_free(form);
        form = longer;
    }
    return ask_server(url, form, out, st);
}

mr_code mr__google_ask_file(char *const *arguments, mr__credentials *out, mr_status *st)
{
    char *text = NULL;
    mr_code rc = mr__secret_file_read(arguments[0], &text, st);
    if (rc == MR_OK && !text)
        rc = mr_fail(st, MR_PERMISSION_DENIED, "it does not exist");
    json_t *root = rc == MR_OK ? json_loadb(text, strlen(text), 0, NULL) : NULL;
    const char *type = member(root, "type"), *url = member(root, "token_uri");
    if (!url)
        url = TOKEN_URL;
    if (rc == MR_OK && type && strcmp(type, "service_account") == 0)
        rc = ask_for_account(root, url, out, st);
    else if (rc == MR_OK && type && strcmp(type, "authorized_user") == 0)
        rc = ask_for_user(root, url, out, st);
    else if (rc == MR_OK)
        rc = mr_fail(st, type ? MR_UNIMPLEMENTED : MR_INVALID_ARGUMENT,
                     "the type of its credentials is %.64s; service_account and authorized_user "
                     "are read, and GOOGLE_OAUTH_ACCESS_TOKEN takes any token",
                     type ? type : "missing");
    if (rc != MR_OK)
        mr_status_prefix(st, "Google's credentials in %s", arguments[0]);
    out->origin = "the file that GOOGLE_APPLICATION_CREDENTIALS names, or that of gcloud";
    json_decref(root);
    mr__secret_free(text);
    return rc;
}

/* ---- the machine ---- */

mr_code mr__google_ask_metadata(char *const *arguments, mr__credentials *out, mr_status *st)
{
    char *url =
        mr_strf("%s/computeMetadata/v1/instance/service-accounts/default/token", arguments[0]);
    mr__small_answer a = {0};
    if (!url)
        return mr_fail_memory(st, 0, "a URL");
    mr_code rc = mr__small_request_send(&(mr__small_request){.url = url,
                                                             .headers = {"Metadata-Flavor: Google"},
                                                             .limit_ms = FIRST_MS,
                                                             .direct = true,
                                                             .stops = mr__access_stops},
                                        &a, st);
    mr_free(url);
    if (rc == MR_UNAVAILABLE)
        rc = mr_fail(st, MR_NOT_FOUND, "%s does not answer", arguments[0]);
    else if (rc == MR_OK && (!a.of_google || (a.status >= 400 && a.status < 500)))
        rc = mr_fail(st, MR_NOT_FOUND, "%s has no service account for this machine", arguments[0]);
    else if (rc == MR_OK && a.status != 200)
        rc = mr_fail(st, MR_UNAVAILABLE, "Google's metadata server answered %ld", a.status);
    if (rc == MR_OK) {
        rc = take_token(&a, out, st);
        if (rc != MR_OK)
            mr_status_prefix(st, "Google's metadata server");
    }
    out->origin = "Google's metadata server";
    mr__small_answer_reset(&a);
    return rc;
}
