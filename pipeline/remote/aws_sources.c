/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/aws_sources.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pipeline/remote/secret_file.h"
#include "pipeline/remote/small_request.h"
#include "pipeline/remote/url.h"
#include "pipeline/remote/xml_text.h"
#include "pipeline/system/retry.h"

enum {
    STS_MS = 30000,
    STS_TRIES = 4,
    LOCAL_MS = 5000, /* of servers of the host */
    LOCAL_TRIES = 3,
    FIRST_MS = 1000, /* of instance metadata, which may not be there */
    PROCESS_MS = 60000,
    LOOK_MS = 50,
    MOST_OUTPUT = 1 << 16
};

#define CONTAINER_HOST "http://169.254.170.2"

/* ---- STS ---- */

const char *mr__aws_ending(const char *region)
{
    return strncmp(region, "cn-", 3) == 0 ? ".cn" : "";
}

/* Adds "&name=value" to the body. */
static bool add(char **body, const char *name, const char *value)
{
    char *coded = value ? mr__url_encode(value, "") : NULL;
    char *longer = coded ? mr_strf("%s&%s=%s", *body, name, coded) : NULL;
    mr__secret_free(coded);
    if (longer) {
        mr__secret_free(*body);
        *body = longer;
    }
    return longer != NULL;
}

static mr_code sts_url(const char *region, char **out, mr_status *st)
{
    const char *endpoint = mr__variable("AWS_ENDPOINT_URL_STS");
    if (!endpoint)
        endpoint = mr__variable("AWS_ENDPOINT_URL");
    bool bare = endpoint && !strstr(endpoint, "://");
    size_t n = endpoint ? strlen(endpoint) : 0;
    while (n && endpoint[n - 1] == '/')
        n--;
    *out = endpoint ? mr_strf("%s%.*s/", bare ? "https://" : "", (int)n, endpoint)
                    : mr_strf("https://sts.%.64s.amazonaws.com%s/", region, mr__aws_ending(region));
    return *out ? MR_OK : mr_fail_memory(st, 0, "a URL");
}

/* "STS answered 403 (AccessDenied)". The message, which may repeat a part of the request, is left
 * out. */
static mr_code fail_sts(const mr__small_answer *a, mr_status *st)
{
    char code[80] = "";
    const char *at = a->text;
    bool has = mr__xml_text(&at, a->text + a->size, "Code", code, sizeof code);
    mr_code why = a->status == 429 || a->status >= 500 ? MR_UNAVAILABLE : MR_PERMISSION_DENIED;
    return mr_fail(st, why, "STS answered %ld%s%s%s", a->status, has ? " (" : "", code,
                   has ? ")" : "");
}

static mr_code take_sts_answer(const mr__small_answer *a, mr__credentials *out, mr_status *st)
{
    char id[256], secret[512], token[8192], ends[64];
    const char *end = a->text + a->size, *at[4] = {a->text, a->text, a->text, a->text};
    if (a->status != 200)
        return fail_sts(a, st);
    bool good = mr__xml_text(&at[0], end, "AccessKeyId", id, sizeof id) &&
                mr__xml_text(&at[1], end, "SecretAccessKey", secret, sizeof secret) &&
                mr__xml_text(&at[2], end, "SessionToken", token, sizeof token) &&
                mr__xml_text(&at[3], end, "Expiration", ends, sizeof ends) &&
                mr__time_of_text(ends, &out->ends_at);
    mr_code rc = good ? mr__secret_copy(&out->id, id, st)
                      : mr_fail(st, MR_DATA_LOSS, "STS sent no credentials");
    if (rc == MR_OK)
        rc = mr__secret_copy(&out->secret, secret, st);
    if (rc == MR_OK)
        rc = mr__secret_copy(&out->token, token, st);
    explicit_bzero(secret, sizeof secret);
    explicit_bzero(token, sizeof token);
    return rc;
}

/* Asks STS for the role; `body` has what the action needs, owned. */
static mr_code ask_sts(const mr__aws_role *role, char *body, const mr__credentials *by,
                       mr__credentials *out, mr_status *st)
{
    char signature[128], *url = NULL, *user = NULL, *header = NULL;
    mr__small_answer a = {0};
    mr_code rc = sts_url(role->region, &url, st);
    bool good = body && add(&body, "Version", "2011-06-15") && add(&body, "RoleArn", role->arn) &&
                add(&body, "RoleSessionName", role->session ? role->session : "millrace") &&
                (!role->external_id || add(&body, "ExternalId", role->external_id)) &&
                (!role->seconds || add(&body, "DurationSeconds", role->seconds));
    snprintf(signature, sizeof signature, "aws:amz:%.64s:sts", role->region);
    if (good && by)
        good = (user = mr_strf("%s:%s", by->id, by->secret)) != NULL;
    if (good && by && by->token)
        good = (header = mr_strf("x-amz-security-token: %s", by->token)) != NULL;
    if (rc == MR_OK && !good)
        rc = mr_fail_memory(st, 0, "a request for credentials");
    if (rc == MR_OK)
        rc = mr__small_request_send(
            &(mr__small_request){.url = url,
                                 .body = body,
                                 .headers = {header},
                                 .user = user,
                                 .signature = by ? signature : NULL,
                                 .authorities = mr__authorities("AWS_CA_BUNDLE"),
                                 .limit_ms = STS_MS,
                                 .tries = STS_TRIES,
                                 .stops = mr__access_stops},
            &a, st);
    if (rc == MR_OK)
        rc = take_sts_answer(&a, out, st);
    else
        mr_status_prefix(st, "STS");
    out->origin = role->origin;
    mr__small_answer_reset(&a);
    mr__secret_free(body);
    mr__secret_free(user);
    mr__secret_free(header);
    mr_free(url);
    return rc;
}

mr_code mr__aws_take_role(const mr__aws_role *role, const mr__credentials *by, mr__credentials *out,
                          mr_status *st)
{
    return ask_sts(role, mr_strdup("Action=AssumeRole"), by, out, st);
}

mr_code mr__aws_take_role_by_token(const mr__aws_role *role, const char *token_file,
                                   mr__credentials *out, mr_status *st)
{
    char *token = NULL;
    MR_TRY(mr__secret_line_read(token_file, &token, st));
    if (!token || !*token) {
        mr__secret_free(token);
        return mr_fail(st, MR_PERMISSION_DENIED, "the file of the web identity's token, %s, %s",
                       token_file, token ? "is empty" : "does not exist");
    }
    char *body = mr_strdup("Action=AssumeRoleWithWebIdentity");
    if (body && !add(&body, "WebIdentityToken", token)) {
        mr_free(body);
        body = NULL;
    }
    mr__secret_free(token);
    return ask_sts(role, body, NULL, out, st);
}

/* ---- JSON ---- */

static const char *member(const json_t *root, const char *name)
{
    const char *v = json_string_value(json_object_get(root, name));
    return v && *v ? v : NULL;
}

/* {"AccessKeyId": ..., "SecretAccessKey": ..., TOKEN: ..., "Expiration": ...} */
static mr_code take_json(const char *text, size_t size, const char *name_of_token,
                         mr__credentials *out, mr_status *st)
{
    json_t *root = json_loadb(text, size, 0, NULL);
    const char *id = member(root, "AccessKeyId"), *secret = member(root, "SecretAccessKey");
    const char *token = member(root, name_of_token), *ends = member(root, "Expiration");
    mr_code rc = MR_OK;
    if (!id || !secret || (ends && !mr__time_of_text(ends, &out->ends_at)))
        rc = mr_fail(st, MR_DATA_LOSS,
                     "the answer is not JSON with AccessKeyId, SecretAccessKey and, as a time, "
                     "Expiration");
    if (rc == MR_OK)
        rc = mr__secret_copy(&out->id, id, st);
    if (rc == MR_OK)
        rc = mr__secret_copy(&out->secret, secret, st);
    if (rc == MR_OK && token)
        rc = mr__secret_copy(&out->token, token, st);
    json_decref(root);
    return rc;
}

/* ---- programs ---- */

/* Starts the command in a new process group; *fd: its output. */
static mr_code start_process(const char *command, pid_t *pid, int *fd, mr_status *st)
{
    int ends[2];
    char *const arguments[] = {"sh", "-c", (char *)(uintptr_t)command, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    if (mr__sys->pipe2(ends, O_CLOEXEC) < 0)
        return mr_fail_errno(st, errno, "cannot make a pipe for credential_process");
    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    int err = posix_spawn(pid, "/bin/sh", &actions, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    mr__sys->close(ends[1]);
    if (err) {
        mr__sys->close(ends[0]);
        return mr_fail_errno(st, err, "cannot run credential_process");
    }
    *fd = ends[0];
    return MR_OK;
}

/* Reads the output. Returns its size; -1: it is too long, takes too long, or cannot be read. */
static ssize_t read_output(int fd, char *text)
{
    size_t n = 0;
    for (int waited = 0; n < MOST_OUTPUT && waited < PROCESS_MS && !mr__access_stops(NULL);) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (mr__sys->poll(&p, 1, LOOK_MS) <= 0) {
            waited += LOOK_MS;
            continue;
        }
        ssize_t got = mr__sys->read(fd, text + n, MOST_OUTPUT - n);
        if (got == 0)
            return (ssize_t)n;
        if (got < 0 && errno != EINTR)
            return -1;
        n += got > 0 ? (size_t)got : 0;
    }
    return -1;
}

/* Waits for the process, which has closed its output, and for no longer than for that. */
static int end_process(pid_t pid, bool kills)
{
    int status = 0;
    for (int waited = 0; !kills && waited < PROCESS_MS && !mr__access_stops(NULL);
         waited += LOOK_MS) {
        if (waitpid(pid, &status, WNOHANG) != 0)
            return status;
        mr__sys->poll(NULL, 0, waited ? LOOK_MS : 1);
    }
    kill(-pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

mr_code mr__aws_run_process(const char *command, mr__credentials *out, mr_status *st)
{
    pid_t pid = 0;
    int fd = -1;
    char *text = mr_malloc(MOST_OUTPUT);
    if (!text)
        return mr_fail_memory(st, MOST_OUTPUT, "the output of credential_process");
    mr_code rc = start_process(command, &pid, &fd, st);
    if (rc == MR_OK) {
        ssize_t n = read_output(fd, text);
        mr__sys->close(fd);
        int status = end_process(pid, n < 0);
        if (n < 0)
            rc = mr_fail(st, MR_PERMISSION_DENIED,
                         "credential_process printed more than %d bytes, or ran longer than %d s",
                         MOST_OUTPUT, PROCESS_MS / 1000);
        else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            rc = mr_fail(st, MR_PERMISSION_DENIED, "credential_process failed with status %d",
                         WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
        else
            rc = take_json(text, (size_t)n, "SessionToken", out, st);
    }
    if (rc == MR_DATA_LOSS)
        mr_status_prefix(st, "credential_process");
    out->origin = "credential_process of the profile";
    explicit_bzero(text, MOST_OUTPUT);
    mr_free(text);
    return rc;
}

/* ---- servers of the host ---- */

static bool begins(const char *text, const char *with)
{
    return strncasecmp(text, with, strlen(with)) == 0;
}

/* The token goes unencrypted only to this host, and to the agents of ECS and EKS. */
static bool is_host_of_container(const char *url)
{
    static const char *const hosts[] = {"localhost", "169.254.170.2", "169.254.170.23", "[::1]",
                                        "[fd00:ec2::23]"};
    const char *host = url + sizeof "http://" - 1;
    size_t n = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":/?#");
    unsigned v[4];
    int used = 0;
    if (memchr(host, '@', strcspn(host, "/?#")) || (host[n] && !strchr(":/?#", host[n])))
        return false;
    if (sscanf(host, "%3u.%3u.%3u.%3u%n", &v[0], &v[1], &v[2], &v[3], &used) == 4 &&
        (size_t)used == n && v[0] == 127)
        return true;
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        if (strlen(hosts[i]) == n && strncasecmp(host, hosts[i], n) == 0)
            return true;
    return false;
}

mr_code mr__aws_container_url(char **out, mr_status *st)
{
    const char *relative = mr__variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = mr__variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    *out = NULL;
    if (!relative && !full)
        return MR_NOT_FOUND;
    if (relative && *relative != '/')
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI does not begin with a slash");
    if (!relative && !begins(full, "https://") &&
        (!begins(full, "http://") || !is_host_of_container(full)))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "AWS_CONTAINER_CREDENTIALS_FULL_URI is neither an https URL nor one of this "
                       "host, of 169.254.170.2, 169.254.170.23 or [fd00:ec2::23], so it is not "
                       "asked for credentials");
    *out = relative ? mr_strf(CONTAINER_HOST "%s", relative) : mr_strdup(full);
    return *out ? MR_OK : mr_fail_memory(st, 0, "a URL");
}

static mr_code ask_container(const char *url, const char *token, mr__credentials *out,
                             mr_status *st)
{
    mr__small_answer a = {0};
    char *header = token ? mr_strf("Authorization: %s", token) : NULL;
    mr_code rc = MR_OK;
    if (token && strpbrk(token, "\r\n"))
        rc = mr_fail(st, MR_INVALID_ARGUMENT,
                     "the token for the container's credentials has a line break");
    else if (token && !header)
        rc = mr_fail_memory(st, strlen(token), "a token");
    if (rc == MR_OK)
        rc = mr__small_request_send(
            &(mr__small_request){.url = url,
                                 .headers = {header},
                                 .authorities = mr__authorities("AWS_CA_BUNDLE"),
                                 .limit_ms = LOCAL_MS,
                                 .tries = LOCAL_TRIES,
                                 .direct = begins(url, "http://"),
                                 .stops = mr__access_stops},
            &a, st);
    if (rc == MR_OK && a.status != 200)
        rc = mr_fail(st, a.status >= 500 ? MR_UNAVAILABLE : MR_PERMISSION_DENIED,
                     "the server answered %ld", a.status);
    if (rc == MR_OK)
        rc = take_json(a.text, a.size, "Token", out, st);
    mr__small_answer_reset(&a);
    mr__secret_free(header);
    return rc;
}

mr_code mr__aws_ask_container(char *const *arguments, mr__credentials *out, mr_status *st)
{
    char *from_file = NULL;
    mr_code rc = arguments[2] ? mr__secret_line_read(arguments[2], &from_file, st) : MR_OK;
    if (rc == MR_OK && arguments[2] && !from_file)
        rc = mr_fail(st, MR_PERMISSION_DENIED, "%s does not exist", arguments[2]);
    if (rc == MR_OK)
        rc = ask_container(arguments[0], from_file ? from_file : arguments[1], out, st);
    mr__secret_free(from_file);
    if (rc != MR_OK)
        mr_status_prefix(st, "credentials of the container");
    out->origin = "the container (AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI)";
    return rc;
}

mr_code mr__aws_instance_url(char **out, bool *disabled, mr_status *st)
{
    const char *off = mr__variable("AWS_EC2_METADATA_DISABLED");
    const char *at = mr__variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    const char *mode = mr__variable("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");
    *disabled = off && strcasecmp(off, "true") == 0;
    if (!at)
        at = mode && strcasecmp(mode, "ipv6") == 0 ? "http://[fd00:ec2::254]"
                                                   : "http://169.254.169.254";
    size_t n = strlen(at);
    while (n && at[n - 1] == '/')
        n--;
    *out = mr_strndup(at, n);
    return *out ? MR_OK : mr_fail_memory(st, n, "a URL");
}

/* A session of the metadata server; one try, which off the cloud fails. */
static mr_code start_session(const char *server, char **header, mr_status *st)
{
    char *url = mr_strf("%s/latest/api/token", server);
    mr__small_answer a = {0};
    if (!url)
        return mr_fail_memory(st, 0, "a URL");
    mr_code rc = mr__small_request_send(
        &(mr__small_request){.url = url,
                             .method = "PUT",
                             .headers = {"X-aws-ec2-metadata-token-ttl-seconds: 21600"},
                             .limit_ms = FIRST_MS,
                             .direct = true,
                             .stops = mr__access_stops},
        &a, st);
    mr_free(url);
    if (rc == MR_UNAVAILABLE)
        rc = mr_fail(st, MR_NOT_FOUND, "%s does not answer", server);
    else if (rc == MR_OK && a.status != 200)
        rc = mr_fail(st, MR_NOT_FOUND, "%s answered %ld", server, a.status);
    else if (rc == MR_OK && (a.size == 0 || strpbrk(a.text, "\r\n")))
        rc = mr_fail(st, MR_NOT_FOUND, "%s answered without a token", server);
    if (rc == MR_OK && !(*header = mr_strf("X-aws-ec2-metadata-token: %s", a.text)))
        rc = mr_fail_memory(st, a.size, "a token");
    mr__small_answer_reset(&a);
    return rc;
}

static mr_code ask_metadata(const char *server, const char *path, const char *header,
                            mr__small_answer *out, mr_status *st)
{
    char *url = mr_strf("%s/latest/meta-data/iam/security-credentials/%s", server, path);
    if (!url)
        return mr_fail_memory(st, 0, "a URL");
    mr_code rc = mr__small_request_send(&(mr__small_request){.url = url,
                                                             .headers = {header},
                                                             .limit_ms = LOCAL_MS,
                                                             .tries = LOCAL_TRIES,
                                                             .direct = true,
                                                             .stops = mr__access_stops},
                                        out, st);
    mr_free(url);
    if (rc == MR_OK && out->status == 404)
        return mr_fail(st, MR_NOT_FOUND, "the instance has no role");
    if (rc == MR_OK && out->status != 200)
        return mr_fail(st, MR_UNAVAILABLE, "instance metadata: %s answered %ld", server,
                       out->status);
    if (rc != MR_OK)
        mr_status_prefix(st, "instance metadata");
    return rc;
}

mr_code mr__aws_ask_instance(char *const *arguments, mr__credentials *out, mr_status *st)
{
    char *header = NULL;
    mr__small_answer role = {0}, a = {0};
    mr_code rc = start_session(arguments[0], &header, st);
    if (rc == MR_OK)
        rc = ask_metadata(arguments[0], "", header, &role, st);
    if (rc == MR_OK) {
        role.text[strcspn(role.text, "\r\n")] = '\0';
        char *name = mr__url_encode(role.text, "");
        rc = name ? ask_metadata(arguments[0], name, header, &a, st)
                  : mr_fail_memory(st, role.size, "a role");
        mr_free(name);
    }
    if (rc == MR_OK) {
        rc = take_json(a.text, a.size, "Token", out, st);
        if (rc != MR_OK)
            mr_status_prefix(st, "instance metadata");
    }
    out->origin = "instance metadata";
    mr__small_answer_reset(&role);
    mr__small_answer_reset(&a);
    mr__secret_free(header);
    return rc;
}
