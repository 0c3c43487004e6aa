/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/credentials.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pipeline/remote/aws_profile.h"
#include "pipeline/remote/aws_sources.h"
#include "tests/harness.h"

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    mr_check(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

/* "id secret token region origin", or the error. */
static const char *found(void)
{
    static char text[1024];
    mr__s3_credentials c = {0};
    mr_status st;
    if (mr__s3_credentials_find(&c, &st) != MR_OK)
        snprintf(text, sizeof text, "%d: %s", (int)st.code, st.message);
    else
        snprintf(text, sizeof text, "%s %s %s %s %.18s", c.id ? c.id : "-",
                 c.secret ? c.secret : "-", c.token ? c.token : "-", c.region,
                 c.origin ? c.origin : "-");
    mr__s3_credentials_reset(&c);
    return text;
}

static void forget(void)
{
    static const char *const names[] = {"AWS_ACCESS_KEY_ID",
                                        "AWS_SECRET_ACCESS_KEY",
                                        "AWS_SESSION_TOKEN",
                                        "AWS_REGION",
                                        "AWS_DEFAULT_REGION",
                                        "AWS_PROFILE",
                                        "MILLRACE_S3_ANONYMOUS",
                                        "AWS_CONFIG_FILE",
                                        "AWS_SHARED_CREDENTIALS_FILE",
                                        "AWS_WEB_IDENTITY_TOKEN_FILE",
                                        "AWS_ROLE_ARN",
                                        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                                        "AWS_CONTAINER_CREDENTIALS_FULL_URI"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    setenv("HOME", mr_test_path("."), 1);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1); /* the role of this machine */
}

MR_TEST(from_the_environment)
{
    forget();
    mr_has_str(found(), "no credentials for S3 in AWS_ACCESS_KEY_ID");
    setenv("AWS_ACCESS_KEY_ID", "ID", 1);
    mr_has_str(found(), "AWS_SECRET_ACCESS_KEY is not");
    setenv("AWS_SECRET_ACCESS_KEY", "S", 1);
    mr_eq_str(found(), "ID S - us-east-1 AWS_ACCESS_KEY_ID");
    setenv("AWS_SESSION_TOKEN", "T", 1);
    setenv("AWS_DEFAULT_REGION", "r2", 1);
    mr_eq_str(found(), "ID S T r2 AWS_ACCESS_KEY_ID");
    setenv("AWS_REGION", "r1", 1);
    setenv("MILLRACE_S3_ANONYMOUS", "1", 1);
    mr_eq_str(found(), "- - - r1 -");
    setenv("MILLRACE_S3_ANONYMOUS", "0", 1);
    mr_eq_str(found(), "ID S T r1 AWS_ACCESS_KEY_ID");
}

MR_TEST(from_files)
{
    forget();
    mkdir(mr_test_path(".aws"), 0777);
    put(mr_test_path(".aws/credentials"), "# a comment\n[default]\r\naws_access_key_id=D\n"
                                          "aws_secret_access_key = ds \n\n[ p ]\n"
                                          "aws_access_key_id =\tP\naws_secret_access_key=p=s\n"
                                          "  aws_session_token = nested\n[half]\n"
                                          "aws_access_key_id = H\n");
    put(mr_test_path(".aws/config"), "[default]\nregion = rd\n[profile p]\nregion=rp\n"
                                     "[profile c]\naws_access_key_id = C\n"
                                     "aws_secret_access_key = cs\naws_session_token = ct");
    mr_eq_str(found(), "D ds - rd the file of creden");
    setenv("AWS_PROFILE", "p", 1);
    mr_eq_str(found(), "P p=s - rp the file of creden");
    setenv("AWS_REGION", "r", 1);
    mr_eq_str(found(), "P p=s - r the file of creden");
    setenv("AWS_PROFILE", "c", 1);
    mr_eq_str(found(), "C cs ct r the configuration ");
    setenv("AWS_PROFILE", "half", 1);
    mr_has_str(found(), "but not aws_secret_access_key in [half]");
    setenv("AWS_PROFILE", "none", 1);
    mr_has_str(found(), "profile none");
    setenv("AWS_SHARED_CREDENTIALS_FILE", mr_test_path("other"), 1);
    put(mr_test_path("other"), "[none]\naws_access_key_id=O\naws_secret_access_key=os\n");
    mr_eq_str(found(), "O os - r the file of creden");
    setenv("AWS_ACCESS_KEY_ID", "E", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "es", 1);
    mr_eq_str(found(), "E es - r AWS_ACCESS_KEY_ID");
}

MR_TEST(parts_of_a_source)
{
    forget();
    setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/none", 1);
    mr_has_str(found(), "AWS_ROLE_ARN is not");
    forget();
    setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "v2", 1);
    mr_has_str(found(), "does not begin with a slash");
}

/* The address that is asked, or the error. */
static const char *container(const char *relative, const char *full)
{
    static char text[1024];
    char *url = NULL;
    mr_status st;
    forget();
    if (relative)
        setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", relative, 1);
    if (full)
        setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", full, 1);
    mr_code rc = mr__aws_container_url(&url, &st);
    snprintf(text, sizeof text, "%s", url ? url : rc == MR_NOT_FOUND ? "none" : st.message);
    mr_free(url);
    return text;
}

MR_TEST(addresses_of_containers)
{
    static const char *const good[] = {
        "https://any.example.org/x",  "http://127.0.0.1/x",      "http://127.9.8.7:80/x",
        "http://localhost:1/x",       "http://[::1]:99/x",       "http://169.254.170.2/x",
        "HTTP://169.254.170.23/v1/c", "http://[fd00:ec2::23]/x", "http://LOCALHOST?x"};
    static const char *const bad[] = {"http://10.0.0.1/x",
                                      "http://169.254.169.254/x",
                                      "http://127.0.0.1.org/x",
                                      "http://localhost.org/x",
                                      "http://127.1/x",
                                      "http://[::2]/x",
                                      "http://[::1].org/x",
                                      "http://a@127.0.0.1/x",
                                      "http://127.0.0.1@a/x",
                                      "ftp://127.0.0.1/x",
                                      "file:///x",
                                      "127.0.0.1/x",
                                      "http://169.254.170.233/x"};
    mr_eq_str(container(NULL, NULL), "none");
    mr_eq_str(container("/v2/a", NULL), "http://169.254.170.2/v2/a");
    mr_eq_str(container("/v2/a", "http://10.0.0.1/"), "http://169.254.170.2/v2/a");
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        mr_eq_str(container(NULL, good[i]), good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        mr_has_str(container(NULL, bad[i]), "not asked for credentials");
}

typedef struct slow {
    const char *name;
    mr_code rc;
} slow;

static atomic_bool is_asked[2];

/* A source that answers once the other one is asked too. */
static mr_code ask_slow(char *const *arguments, mr__credentials *out, mr_status *st)
{
    int which = arguments[0][0] - '0';
    atomic_store(&is_asked[which], true);
    for (int ms = 0; !atomic_load(&is_asked[!which]); ms++) {
        if (ms == 30000)
            return mr_fail(st, MR_UNAVAILABLE, "the other source waits for this one");
        usleep(1000);
    }
    out->origin = "a slow source";
    return MR_OK;
}

static void *get_slow(void *ctx)
{
    slow *s = ctx;
    const char *const arguments[MR__ACCESS_ARGUMENTS] = {s->name};
    mr__access *a = NULL;
    s->rc = mr__access_get(&a, ask_slow, arguments, NULL);
    mr__access_unref(a);
    return NULL;
}

MR_TEST(a_slow_source_delays_no_other)
{
    slow a = {"0", MR_UNKNOWN}, b = {"1", MR_UNKNOWN};
    pthread_t other;
    mr_check(pthread_create(&other, NULL, get_slow, &a) == 0);
    get_slow(&b);
    pthread_join(other, NULL);
    mr_eq_i64(a.rc, MR_OK);
    mr_eq_i64(b.rc, MR_OK);
}

MR_TEST(times_of_texts)
{
    static const struct {
        const char *text;
        int64_t seconds;
    } good[] = {{"1970-01-01T00:00:00Z", 0},
                {"2024-02-29T12:00:01Z", 1709208001},
                {"2024-02-29T12:00:01", 1709208001},
                {"2024-02-29T12:00:01.123456Z", 1709208001},
                {"2024-02-29T12:00:01+00:00", 1709208001},
                {"2024-02-29T14:30:01+02:30", 1709208001},
                {"2024-02-29T11:30:01.5-00:30", 1709208001}};
    static const char *const bad[] = {
        "", "now", "2024-02-29", "2024-02-29T12:00:01X", "2024-02-29T12:00:01+", "1709208001"};
    int64_t at = -1;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        mr_check(mr__time_of_text(good[i].text, &at));
        mr_eq_i64(at, good[i].seconds * 1000000000);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        mr_check(!mr__time_of_text(bad[i], &at));
}

MR_TEST(sections_of_profiles)
{
    mr__aws_files f = {
        .texts = {(char[]){"[profile]\n[a]\n"},
                  (char[]){"[b]\n[profile  c]\n[ profile\td ]\n[default]\n[profile]\n"
                           "[open\n"}}};
    static const char *const has[] = {"profile", "a", "c", "d", "default"};
    static const char *const has_not[] = {"b", "profile c", "open", "", "ef"};
    for (size_t i = 0; i < sizeof has / sizeof *has; i++)
        mr_check(mr__aws_has_profile(&f, has[i]));
    for (size_t i = 0; i < sizeof has_not / sizeof *has_not; i++)
        mr_check(!mr__aws_has_profile(&f, has_not[i]));
    mr__aws_files none = {0};
    mr_check(!mr__aws_has_profile(&none, "default"));
}
