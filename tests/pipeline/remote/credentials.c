/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/credentials.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/harness.h"

MR_ONE_THREAD;

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
    static const char *const names[] = {"AWS_ACCESS_KEY_ID",          "AWS_SECRET_ACCESS_KEY",
                                        "AWS_SESSION_TOKEN",          "AWS_REGION",
                                        "AWS_DEFAULT_REGION",         "AWS_PROFILE",
                                        "MILLRACE_S3_ANONYMOUS",      "AWS_CONFIG_FILE",
                                        "AWS_SHARED_CREDENTIALS_FILE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    setenv("HOME", mr_test_path("."), 1);
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
