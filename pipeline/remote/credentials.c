/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/credentials.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/system/retry.h"

enum { MOST_FILE = 1 << 20 };

static const char *variable(const char *name)
{
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

void mr__s3_credentials_reset(mr__s3_credentials *c)
{
    mr_free(c->id);
    mr_free(c->secret);
    mr_free(c->token);
    mr_free(c->region);
    *c = (mr__s3_credentials){0};
}

static mr_code copy(char **to, const char *from, size_t n, mr_status *st)
{
    mr_free(*to);
    *to = mr_strndup(from, n);
    return *to ? MR_OK : mr_fail_memory(st, n, "credentials");
}

/* ---- the files of AWS's tools ---- */

/* *text: the file, owned; NULL if it does not exist. */
static mr_code read_file(const char *path, char **text, mr_status *st)
{
    *text = NULL;
    int fd = mr__open_again(path, O_RDONLY | O_NONBLOCK);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return MR_OK;
    mr_code rc = fd < 0
                     ? mr_fail_errno(st, errno, "cannot open %s, which may have credentials", path)
                     : MR_OK;
    char *room = rc == MR_OK ? mr_malloc(MOST_FILE + 1) : NULL;
    ssize_t n = room ? mr__read_all(fd, room, MOST_FILE, -1) : -1;
    if (rc == MR_OK && !room)
        rc = mr_fail_memory(st, MOST_FILE, "a file of credentials");
    else if (rc == MR_OK && n < 0)
        rc = mr_fail_errno(st, errno, "cannot read %s, which may have credentials", path);
    if (fd >= 0)
        mr__sys->close(fd);
    if (rc == MR_OK) {
        room[n] = '\0';
        *text = room;
    } else
        mr_free(room);
    return rc;
}

/* Returns the value of a key of a section of an INI file, *n bytes; NULL: it has none. */
static const char *value_of(const char *text, const char *section, const char *key, size_t *n)
{
    bool within = false;
    for (const char *at = text; *at; at += strspn(at, "\n")) {
        size_t size = strcspn(at, "\n");
        const char *line = at, *end = at + size;
        at = end;
        while (end > line && strchr(" \t\r", end[-1]))
            end--;
        if (line < end && *line == '[') {
            const char *name = line + 1 + strspn(line + 1, " \t"), *stop = memchr(line, ']', size);
            while (stop && stop > name && (stop[-1] == ' ' || stop[-1] == '\t'))
                stop--;
            within = stop && (size_t)(stop - name) == strlen(section) &&
                     memcmp(name, section, strlen(section)) == 0;
            continue;
        }
        const char *equals = memchr(line, '=', (size_t)(end - line));
        if (!within || !equals || strchr("#; \t", *line))
            continue;
        const char *stop = equals;
        while (stop > line && (stop[-1] == ' ' || stop[-1] == '\t'))
            stop--;
        if ((size_t)(stop - line) != strlen(key) || memcmp(line, key, strlen(key)) != 0)
            continue;
        equals += 1 + strspn(equals + 1, " \t");
        *n = equals < end ? (size_t)(end - equals) : 0;
        return *n ? equals : NULL;
    }
    return NULL;
}

static mr_code take(const char *text, const char *section, const char *key, char **to,
                    mr_status *st)
{
    size_t n = 0;
    const char *v = text && !*to ? value_of(text, section, key, &n) : NULL;
    return v ? copy(to, v, n, st) : MR_OK;
}

static mr_code path_of(const char *name, const char *file, char **out, mr_status *st)
{
    const char *given = variable(name), *home = variable("HOME");
    *out = given ? mr_strdup(given) : mr_strf("%s/.aws/%s", home ? home : "", file);
    return *out ? MR_OK : mr_fail_memory(st, 0, "a file name");
}

/* Takes what the two files say of the profile. */
static mr_code from_files(mr__s3_credentials *c, mr_status *st)
{
    const char *profile = variable("AWS_PROFILE");
    char *paths[2] = {NULL, NULL}, *texts[2] = {NULL, NULL}, *id = NULL, *section = NULL;
    mr_code rc = path_of("AWS_SHARED_CREDENTIALS_FILE", "credentials", &paths[0], st);
    if (rc == MR_OK)
        rc = path_of("AWS_CONFIG_FILE", "config", &paths[1], st);
    for (int i = 0; i < 2 && rc == MR_OK; i++)
        rc = read_file(paths[i], &texts[i], st);
    /* In the second file, the sections of all profiles but "default" say what they are. */
    if (rc == MR_OK) {
        bool plain = !profile || strcmp(profile, "default") == 0;
        section = plain ? mr_strdup("default") : mr_strf("profile %s", profile);
        rc = section ? MR_OK : mr_fail_memory(st, 0, "a profile");
    }
    for (int i = 0; i < 2 && rc == MR_OK; i++) {
        const char *name = i == 0 ? (profile ? profile : "default") : section;
        bool without = !c->id && !id;
        if (without)
            rc = take(texts[i], name, "aws_access_key_id", &id, st);
        if (rc == MR_OK && without && id)
            rc = take(texts[i], name, "aws_secret_access_key", &c->secret, st);
        if (rc == MR_OK && without && id)
            rc = take(texts[i], name, "aws_session_token", &c->token, st);
        if (rc == MR_OK)
            rc = take(texts[i], name, "region", &c->region, st);
        if (rc == MR_OK && without && id && !c->secret)
            rc = mr_fail(st, MR_INVALID_ARGUMENT,
                         "%s has aws_access_key_id but not aws_secret_access_key in [%s]", paths[i],
                         name);
        if (rc == MR_OK && without && id)
            c->origin = i == 0 ? "the file of credentials (~/.aws/credentials)"
                               : "the configuration file (~/.aws/config)";
    }
    if (rc == MR_OK && id) {
        c->id = id;
        id = NULL;
    }
    mr_free(id);
    mr_free(section);
    for (int i = 0; i < 2; i++) {
        mr_free(paths[i]);
        if (texts[i])
            explicit_bzero(texts[i], strlen(texts[i]));
        mr_free(texts[i]);
    }
    return rc;
}

static mr_code from_environment(mr__s3_credentials *c, mr_status *st)
{
    const char *id = variable("AWS_ACCESS_KEY_ID"), *secret = variable("AWS_SECRET_ACCESS_KEY");
    const char *token = variable("AWS_SESSION_TOKEN");
    if (!id)
        return MR_OK;
    if (!secret)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "AWS_ACCESS_KEY_ID is set, but AWS_SECRET_ACCESS_KEY is not");
    c->origin = "AWS_ACCESS_KEY_ID";
    MR_TRY(copy(&c->id, id, strlen(id), st));
    MR_TRY(copy(&c->secret, secret, strlen(secret), st));
    return token ? copy(&c->token, token, strlen(token), st) : MR_OK;
}

mr_code mr__s3_credentials_find(mr__s3_credentials *out, mr_status *st)
{
    const char *region = variable("AWS_REGION"), *none = variable("MILLRACE_S3_ANONYMOUS");
    bool anonymous = none && strcmp(none, "0") != 0;
    mr__s3_credentials c = {0};
    if (!region)
        region = variable("AWS_DEFAULT_REGION");
    mr_code rc = region ? copy(&c.region, region, strlen(region), st) : MR_OK;
    if (rc == MR_OK && !anonymous)
        rc = from_environment(&c, st);
    if (rc == MR_OK && ((!anonymous && !c.id) || !c.region))
        rc = from_files(&c, st);
    if (rc == MR_OK && !c.region)
        rc = copy(&c.region, "us-east-1", 9, st);
    if (rc == MR_OK && anonymous) {
        mr_free(c.id);
        c.id = NULL;
    } else if (rc == MR_OK && !c.id)
        rc = mr_fail(st, MR_PERMISSION_DENIED,
                     "no credentials for S3 in AWS_ACCESS_KEY_ID, ~/.aws/credentials and "
                     "~/.aws/config (profile %.64s); MILLRACE_S3_ANONYMOUS=1 reads public buckets "
                     "without",
                     variable("AWS_PROFILE") ? variable("AWS_PROFILE") : "default");
    if (rc == MR_OK)
        *out = c;
    else
        mr__s3_credentials_reset(&c);
    return rc;
}
