/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/aws_profile.h"

#include <string.h>

#include "pipeline/remote/aws_sources.h"
#include "pipeline/remote/secret_file.h"

enum { MOST_ROLES = 8 /* of profiles that name each other */ };

static const char *const origins[2] = {"the file of credentials (~/.aws/credentials)",
                                       "the configuration file (~/.aws/config)"};

/* ---- the files ---- */

static mr_code path_of(const char *name, const char *file, char **out, mr_status *st)
{
    const char *given = mr__variable(name), *home = mr__variable("HOME");
    if (given && home && strncmp(given, "~/", 2) == 0)
        *out = mr_strf("%s%s", home, given + 1);
    else
        *out = given ? mr_strdup(given) : mr_strf("%s/.aws/%s", home ? home : "", file);
    return *out ? MR_OK : mr_fail_memory(st, 0, "a file name");
}

static mr_code read_texts(mr__aws_files *f, mr_status *st)
{
    MR_TRY(mr__secret_file_read(f->paths[0], &f->texts[0], st));
    return mr__secret_file_read(f->paths[1], &f->texts[1], st);
}

mr_code mr__aws_files_read(mr__aws_files *out, mr_status *st)
{
    *out = (mr__aws_files){0};
    mr_code rc = path_of("AWS_SHARED_CREDENTIALS_FILE", "credentials", &out->paths[0], st);
    if (rc == MR_OK)
        rc = path_of("AWS_CONFIG_FILE", "config", &out->paths[1], st);
    if (rc == MR_OK)
        rc = read_texts(out, st);
    if (rc != MR_OK)
        mr__aws_files_reset(out);
    return rc;
}

void mr__aws_files_reset(mr__aws_files *f)
{
    for (int i = 0; i < 2; i++) {
        mr_free(f->paths[i]);
        mr__secret_free(f->texts[i]);
    }
    *f = (mr__aws_files){0};
}

/* The name of the section that begins in the line, *n bytes; NULL: none does. */
static const char *section_of(const char *line, size_t size, size_t *n)
{
    const char *stop = *line == '[' ? memchr(line, ']', size) : NULL;
    if (!stop)
        return NULL;
    const char *name = line + 1 + strspn(line + 1, " \t");
    while (stop > name && (stop[-1] == ' ' || stop[-1] == '\t'))
        stop--;
    *n = (size_t)(stop - name);
    return name;
}

/* In the second file, the sections of all profiles but "default" say what they are. */
static bool is_section(const char *section, size_t n, const char *profile, bool second)
{
    static const char word[] = "profile";
    bool is_default = strcmp(profile, "default") == 0;
    if (second && n > sizeof word && memcmp(section, word, sizeof word - 1) == 0 &&
        strchr(" \t", section[sizeof word - 1])) {
        size_t skip = sizeof word - 1 + strspn(section + sizeof word - 1, " \t");
        section += skip;
        n -= skip;
        /* `aws configure` writes quotes around names with spaces. */
        if (n >= 2 && strchr("'\"", *section) && section[n - 1] == *section) {
            section++;
            n -= 2;
        }
    } else if (second && !is_default)
        return false;
    return n == strlen(profile) && memcmp(section, profile, n) == 0;
}

/* Returns the value of a key of the profile's section, *n bytes; NULL: it has none. key NULL: the
 * section itself. */
static const char *value_of(const char *text, bool second, const char *profile, const char *key,
                            size_t *n)
{
    bool within = false;
    for (const char *at = text; at && *at; at += strspn(at, "\n")) {
        size_t size = strcspn(at, "\n"), n_name;
        const char *line = at, *end = at + size;
        at = end;
        while (end > line && strchr(" \t\r", end[-1]))
            end--;
        if (line < end && *line == '[') {
            const char *name = section_of(line, size, &n_name);
            within = name && is_section(name, n_name, profile, second);
            if (within && !key)
                return name;
            continue;
        }
        const char *equals = key ? memchr(line, '=', (size_t)(end - line)) : NULL;
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

static mr_code value_in(const mr__aws_files *f, int file, const char *name, const char *key,
                        char **out, mr_status *st)
{
    size_t n = 0;
    const char *v = value_of(f->texts[file], file == 1, name, key, &n);
    *out = v ? mr_strndup(v, n) : NULL;
    return v && !*out ? mr_fail_memory(st, n, "a profile") : MR_OK;
}

mr_code mr__aws_profile_value(const mr__aws_files *f, const char *name, const char *key, char **out,
                              mr_status *st)
{
    MR_TRY(value_in(f, 0, name, key, out, st));
    return *out ? MR_OK : value_in(f, 1, name, key, out, st);
}

bool mr__aws_has_profile(const mr__aws_files *f, const char *name)
{
    size_t n;
    return value_of(f->texts[0], false, name, NULL, &n) ||
           value_of(f->texts[1], true, name, NULL, &n);
}

/* ---- keys ---- */

/* MR_NOT_FOUND: the file has none. */
static mr_code keys_in(const mr__aws_files *f, int file, const char *name, mr__credentials *out,
                       mr_status *st)
{
    MR_TRY(value_in(f, file, name, "aws_access_key_id", &out->id, st));
    if (!out->id)
        return MR_NOT_FOUND;
    mr_code rc = value_in(f, file, name, "aws_secret_access_key", &out->secret, st);
    if (rc == MR_OK)
        rc = value_in(f, file, name, "aws_session_token", &out->token, st);
    if (rc == MR_OK && !out->secret)
        rc = mr_fail(st, MR_INVALID_ARGUMENT,
                     "%s has aws_access_key_id but not aws_secret_access_key in [%s]",
                     f->paths[file], name);
    out->origin = origins[file];
    if (rc != MR_OK)
        mr__credentials_reset(out);
    return rc;
}

mr_code mr__aws_profile_keys(const mr__aws_files *f, const char *name, mr__credentials *out,
                             char **asks, mr_status *st)
{
    MR_TRY(mr__aws_profile_value(f, name, "role_arn", asks, st));
    mr_code rc = *asks ? MR_NOT_FOUND : keys_in(f, 0, name, out, st);
    if (rc == MR_NOT_FOUND && !*asks) {
        mr_code got = mr__aws_profile_value(f, name, "credential_process", asks, st);
        rc = got != MR_OK ? got : *asks ? MR_NOT_FOUND : keys_in(f, 1, name, out, st);
    }
    if (rc == MR_NOT_FOUND && !*asks) {
        mr_code got = mr__aws_profile_value(f, name, "sso_session", asks, st);
        if (got == MR_OK && !*asks)
            got = mr__aws_profile_value(f, name, "sso_start_url", asks, st);
        rc = got == MR_OK ? rc : got;
    }
    return rc;
}

/* ---- roles ---- */

typedef struct role_text {
    char *arn, *source, *named, *token_file, *session, *external_id, *seconds, *serial;
} role_text;

static mr_code read_role(const mr__aws_files *f, const char *name, role_text *r, mr_status *st)
{
    const struct {
        const char *key;
        char **to;
    } all[] = {{"role_arn", &r->arn},
               {"source_profile", &r->source},
               {"credential_source", &r->named},
               {"web_identity_token_file", &r->token_file},
               {"role_session_name", &r->session},
               {"external_id", &r->external_id},
               {"duration_seconds", &r->seconds},
               {"mfa_serial", &r->serial}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        MR_TRY(mr__aws_profile_value(f, name, all[i].key, all[i].to, st));
    return MR_OK;
}

static void free_role(role_text *r)
{
    char *const all[] = {r->arn,     r->source,      r->named,   r->token_file,
                         r->session, r->external_id, r->seconds, r->serial};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mr_free(all[i]);
}

static mr_code from_variables(mr__credentials *out, mr_status *st)
{
    const char *token = mr__variable("AWS_SESSION_TOKEN");
    mr__credentials c = {.id = (char *)(uintptr_t)mr__variable("AWS_ACCESS_KEY_ID"),
                         .secret = (char *)(uintptr_t)mr__variable("AWS_SECRET_ACCESS_KEY"),
                         .token = (char *)(uintptr_t)token};
    return c.id && c.secret ? mr__credentials_copy(out, &c, st) : MR_NOT_FOUND;
}

static mr_code from_named_source(const char *source, mr__credentials *out, mr_status *st)
{
    char *url = NULL;
    bool disabled = false;
    mr_code rc = MR_NOT_FOUND;
    if (strcmp(source, "Environment") == 0)
        rc = from_variables(out, st);
    else if (strcmp(source, "EcsContainer") == 0) {
        char *token = (char *)(uintptr_t)mr__variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
        char *file = (char *)(uintptr_t)mr__variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
        rc = mr__aws_container_url(&url, st);
        if (rc == MR_OK)
            rc = mr__aws_ask_container((char *[]){url, token, file}, out, st);
    } else if (strcmp(source, "Ec2InstanceMetadata") == 0) {
        rc = mr__aws_instance_url(&url, &disabled, st);
        if (rc == MR_OK)
            rc = disabled ? MR_NOT_FOUND : mr__aws_ask_instance((char *[]){url}, out, st);
    } else
        rc = mr_fail(st, MR_INVALID_ARGUMENT,
                     "credential_source is '%.64s'; it can be Environment, EcsContainer or "
                     "Ec2InstanceMetadata",
                     source);
    mr_free(url);
    if (rc == MR_NOT_FOUND)
        rc = mr_fail(st, MR_PERMISSION_DENIED, "credential_source %s has no credentials", source);
    return rc;
}

static mr_code of_profile(const mr__aws_files *f, const char *name, const char *region, int depth,
                          mr__credentials *out, mr_status *st);

/* Those that a role is taken with. */
static mr_code of_source(const mr__aws_files *f, const char *name, const role_text *r,
                         const char *region, int depth, mr__credentials *out, mr_status *st)
{
    if (r->named)
        return from_named_source(r->named, out, st);
    if (strcmp(r->source, name) != 0)
        return of_profile(f, r->source, region, depth + 1, out, st);
    mr_code rc = keys_in(f, 0, name, out, st); /* a profile that is its own source */
    return rc == MR_NOT_FOUND ? keys_in(f, 1, name, out, st) : rc;
}

static mr_code take_role(const mr__aws_files *f, const char *name, const role_text *r,
                         const char *region, int depth, mr__credentials *out, mr_status *st)
{
    mr__aws_role role = {.arn = r->arn,
                         .session = r->session,
                         .external_id = r->external_id,
                         .seconds = r->seconds,
                         .region = region,
                         .origin = "the role_arn of the profile, through STS"};
    if (r->token_file)
        return mr__aws_take_role_by_token(&role, r->token_file, out, st);
    if (r->serial)
        return mr_fail(st, MR_UNIMPLEMENTED,
                       "the profile has mfa_serial, and there is no one to ask for a code; let "
                       "aws configure export-credentials --format env set the variables");
    if (!r->source && !r->named)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the profile has role_arn, but not source_profile, credential_source or "
                       "web_identity_token_file");
    mr__credentials by = {0};
    mr_code rc = of_source(f, name, r, region, depth, &by, st);
    if (rc == MR_NOT_FOUND)
        rc =
            mr_fail(st, MR_PERMISSION_DENIED, "source_profile %.64s has no credentials", r->source);
    if (rc == MR_OK)
        rc = mr__aws_take_role(&role, &by, out, st);
    mr__credentials_reset(&by);
    return rc;
}

/* MR_NOT_FOUND: the profile has no credentials. */
static mr_code of_profile(const mr__aws_files *f, const char *name, const char *region, int depth,
                          mr__credentials *out, mr_status *st)
{
    role_text r = {0};
    char *asks = NULL, *process = NULL;
    if (depth == MOST_ROLES)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the source_profile of profiles leads through more than %d of them",
                       MOST_ROLES);
    mr_code rc = mr__aws_profile_keys(f, name, out, &asks, st);
    if (rc == MR_NOT_FOUND && asks) {
        rc = read_role(f, name, &r, st);
        if (rc == MR_OK && !r.arn)
            rc = mr__aws_profile_value(f, name, "credential_process", &process, st);
        if (rc == MR_OK && r.arn)
            rc = take_role(f, name, &r, region, depth, out, st);
        else if (rc == MR_OK && process)
            rc = mr__aws_run_process(process, out, st);
        else if (rc == MR_OK)
            rc = mr_fail(st, MR_UNIMPLEMENTED,
                         "the profile signs in by IAM Identity Center (sso_session); let "
                         "aws configure export-credentials --format env set the variables");
        if (rc != MR_OK)
            mr_status_prefix(st, "profile %.64s", name);
    }
    free_role(&r);
    mr_free(asks);
    mr_free(process);
    return rc;
}

mr_code mr__aws_ask_profile(char *const *arguments, mr__credentials *out, mr_status *st)
{
    mr__aws_files f = {.paths = {arguments[2], arguments[3]}};
    mr_code rc = read_texts(&f, st);
    if (rc == MR_OK)
        rc = of_profile(&f, arguments[0], arguments[1], 0, out, st);
    if (rc == MR_NOT_FOUND)
        rc =
            mr_fail(st, MR_PERMISSION_DENIED, "the profile %.64s has no credentials", arguments[0]);
    f.paths[0] = f.paths[1] = NULL; /* the caller's */
    mr__aws_files_reset(&f);
    return rc;
}
