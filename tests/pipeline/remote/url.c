/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline/remote/gcs.h"
#include "pipeline/remote/hf.h"
#include "pipeline/remote/s3.h"
#include "tests/harness.h"

MR_ONE_THREAD;

MR_TEST(names_that_are_urls)
{
    mr_check(mr__url_kind_of("http://h/a") == MR__URL_HTTP);
    mr_check(mr__url_kind_of("https://h/a") == MR__URL_HTTP);
    mr_check(mr__url_kind_of("s3://b/k") == MR__URL_S3);
    mr_check(mr__url_kind_of("gs://b/k") == MR__URL_GS);
    mr_check(mr__url_kind_of("hf://datasets/o/n/f") == MR__URL_HF);
    static const char *const paths[] = {"",      "-",      "h",         "http:/a", "https",
                                        "s3:/b", "s3/b/k", "xs3://b/k", "S3://b",  "./s3://b",
                                        "gs:/b", "g",      "hf:/d",     "hg://b"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        mr_check(!mr__is_url(paths[i]));
}

MR_TEST(encoding)
{
    char text[] = "a b/c+%\xc3\xa9~", *coded = mr__url_encode(text, "/");
    mr_eq_str(coded, "a%20b/c%2B%25%C3%A9~");
    mr__url_decode(coded);
    mr_eq_str(coded, text);
    mr_free(coded);
    char odd[] = "%4%zz%41+";
    mr__url_decode(odd);
    mr_eq_str(odd, "%4%zzA ");
}

/* The address of an object with these variables; or the error. */
static const char *address(const char *url, const char *query)
{
    static char text[1024];
    mr__object_target t;
    mr_status st;
    mr_code rc = mr__s3_target(url, query, &t, &st);
    snprintf(text, sizeof text, "%s", rc == MR_OK ? t.url : st.message);
    mr__object_target_reset(&t);
    return text;
}

MR_TEST(addresses_of_objects)
{
    static const char *const names[] = {
        "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3",    "AWS_REGION",       "AWS_DEFAULT_REGION",
        "AWS_PROFILE",      "MILLRACE_S3_PATH_STYLE", "AWS_ACCESS_KEY_ID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    setenv("HOME", mr_test_path("home"), 1);
    setenv("MILLRACE_S3_ANONYMOUS", "1", 1);
    mr_eq_str(address("s3://b/k/l m", NULL), "https://b.s3.us-east-1.amazonaws.com/k/l%20m");
    mr_eq_str(address("s3://b.c/k", NULL), "https://s3.us-east-1.amazonaws.com/b.c/k");
    setenv("AWS_REGION", "eu-1", 1);
    mr_eq_str(address("s3://b/", "a=1"), "https://b.s3.eu-1.amazonaws.com/?a=1");
    setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:99/", 1);
    mr_eq_str(address("s3://b/k", NULL), "http://127.0.0.1:99/b/k");
    mr_eq_str(address("s3://b/k", "a=1"), "http://127.0.0.1:99/b?a=1");
    setenv("AWS_ENDPOINT_URL_S3", "http://store:99", 1);
    mr_eq_str(address("s3://b/k", NULL), "http://store:99/b/k");
    setenv("MILLRACE_S3_PATH_STYLE", "0", 1);
    mr_eq_str(address("s3://b/k", NULL), "http://b.store:99/k");
    unsetenv("MILLRACE_S3_PATH_STYLE");
    setenv("AWS_ENDPOINT_URL_S3", "https://s3.store.org", 1);
    mr_eq_str(address("s3://b/k", NULL), "https://b.s3.store.org/k");
    setenv("AWS_ENDPOINT_URL_S3", "[::1]:9", 1);
    mr_eq_str(address("s3://b/k", NULL), "https://[::1]:9/b/k");
    mr_has_str(address("s3://b", NULL), "names a bucket");
    mr_has_str(address("s3:///k", NULL), "no bucket");
    mr_has_str(address("s3://b@c/k", NULL), "not the name of a bucket");
    unsetenv("MILLRACE_S3_ANONYMOUS");
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1); /* the role of this machine */
    mr_has_str(address("s3://b/k", NULL), "no credentials");
}

MR_TEST(texts_of_documents)
{
    static const char text[] =
        "<L><Key>a&amp;b&#38;&quot;&x;</Key><Keys>no</Keys><Key>c</Key><Key>d";
    const char *at = text, *end = text + strlen(text);
    char out[8];
    mr_check(mr__xml_text(&at, end, "Key", out, sizeof out));
    mr_eq_str(out, "a&b&\"&x");
    at = text + 8;
    mr_check(mr__xml_text(&at, end, "Key", out, sizeof out));
    mr_eq_str(out, "c");
    mr_check(!mr__xml_text(&at, end, "Key", out, sizeof out));
    at = text;
    mr_check(!mr__xml_text(&at, end, "Size", out, sizeof out));
}

static const char *address_of_google(const char *url, const char *query)
{
    static char text[1024];
    mr__object_target t;
    mr_status st;
    mr_code rc = mr__gcs_target(url, query, &t, &st);
    snprintf(text, sizeof text, "%s", rc == MR_OK ? t.url : st.message);
    mr__object_target_reset(&t);
    return text;
}

MR_TEST(addresses_of_google)
{
    setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "t", 1);
    unsetenv("STORAGE_EMULATOR_HOST");
    mr_eq_str(address_of_google("gs://b.c/k/l m", NULL),
              "https://storage.googleapis.com/b.c/k/l%20m");
    mr_eq_str(address_of_google("gs://b/", "a=1"), "https://storage.googleapis.com/b?a=1");
    setenv("STORAGE_EMULATOR_HOST", "localhost:4443/", 1);
    mr_eq_str(address_of_google("gs://b/k", NULL), "http://localhost:4443/b/k");
    setenv("STORAGE_EMULATOR_HOST", "https://store.org", 1);
    mr_eq_str(address_of_google("gs://b/k", NULL), "https://store.org/b/k");
    mr_has_str(address_of_google("gs://b", NULL), "names a bucket");
    mr_has_str(address_of_google("gs:///k", NULL), "no bucket");
    mr_has_str(address_of_google("gs://b@c/k", NULL), "not the name of a bucket");
    setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "t\nX: y", 1);
    mr_has_str(address_of_google("gs://b/k", NULL), "line break");
}

#define COMMIT "0123456789012345678901234567890123456789"

static const char *address_of_hub(const char *url)
{
    static char text[1024];
    mr__object_target t;
    mr_status st;
    mr_code rc = mr__hf_target(url, NULL, &t, &st);
    snprintf(text, sizeof text, "%s", rc == MR_OK ? t.url : st.message);
    mr__object_target_reset(&t);
    return text;
}

MR_TEST(addresses_of_the_hub)
{
    static const char head[] = "https://huggingface.co/datasets/o/n/resolve/" COMMIT "/";
    setenv("HF_TOKEN", "t", 1);
    unsetenv("HF_ENDPOINT");
    char want[256];
    snprintf(want, sizeof want, "%sa/b%%20c", head);
    mr_eq_str(address_of_hub("hf://datasets/o/n@" COMMIT "/a/b c"), want);
    setenv("HF_ENDPOINT", "mirror.org//", 1);
    mr_eq_str(address_of_hub("hf://datasets/o/n@" COMMIT "/a"),
              "https://mirror.org/datasets/o/n/resolve/" COMMIT "/a");
    static const char *const bad[] = {"hf://o/n/a",           "hf://datasets",
                                      "hf://datasets/o",      "hf://datasets/o/n",
                                      "hf://datasets/o/n/",   ("hf://datasets/o/n@" COMMIT),
                                      "hf://datasets/o/n@/a", "hf://datasets/./n/a",
                                      "hf://datasets/o/../a", "hf://datasets/o/n?x/a"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        mr_has_str(address_of_hub(bad[i]), "hf://datasets/OWNER/NAME[@REVISION]/path");
    setenv("HF_TOKEN", "t\rX: y", 1);
    mr_has_str(address_of_hub("hf://datasets/o/n@" COMMIT "/a"), "line break");
}
