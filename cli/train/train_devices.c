/* SPDX-License-Identifier: Apache-2.0 */
/* millrace devices: lists the devices for training, why a kind is missing, and the libraries in
 * use. */
#include <inttypes.h>
#include <string.h>

#include <millrace/pipeline/memory/alloc.h>
#include <millrace/trainer/device/device.h>
#include "../cli.h"

typedef struct listing {
    bool json, first;
} listing;

static void begin_object(listing *l)
{
    printf("%s{", l->first ? "" : ", ");
    l->first = false;
}

static void print_text(const char *key, const char *value)
{
    printf("\"%s\": ", key);
    cli_print_string(stdout, value, strlen(value));
}

static void print_device(listing *l, const char *name, const char *kind, bool more)
{
    mr_device *d = NULL;
    mr_device_properties p = {0};
    mr_status st;
    mr_code rc = mr_device_open(&d, name, &st);
    if (rc == MR_OK)
        mr_device_describe(d, &p);
    mr_device_close(d);
    if (l->json) {
        begin_object(l);
        print_text("name", name);
        fputs(", ", stdout);
        print_text("kind", kind);
        fputs(", ", stdout);
        print_text("model", p.model);
        printf(", \"memory_bytes\": %" PRIu64, p.memory_bytes);
        if (p.major > 0)
            printf(", \"compute_capability\": \"%" PRId32 ".%" PRId32 "\"", p.major, p.minor);
        if (rc != MR_OK) {
            fputs(", ", stdout);
            print_text("error", st.message);
        }
        putchar('}');
        return;
    }
    printf("%s  %s", name, p.model[0] ? p.model : "processor");
    if (p.memory_bytes > 0)
        printf("  %.1f GiB", (double)p.memory_bytes / (double)(1 << 30));
    if (p.major > 0)
        printf("  compute capability %" PRId32 ".%" PRId32, p.major, p.minor);
    if (more)
        printf("  (and %s:1, %s:2, ...: logical devices of the same processors)", kind, kind);
    if (rc != MR_OK)
        printf("  cannot be used: %s", st.message);
    putchar('\n');
}

/* The processors provide any number of logical devices: they are listed as one. */
static bool is_logical(const char *kind)
{
    return strcmp(kind, "cpu") == 0;
}

static void list_kind(void *ctx, const char *kind, size_t n, const char *why)
{
    char name[64];
    (void)why;
    for (size_t i = 0; i < n && (i == 0 || !is_logical(kind)); i++) {
        snprintf(name, sizeof name, "%s:%zu", kind, i);
        print_device(ctx, name, kind, is_logical(kind));
    }
}

static void list_missing(void *ctx, const char *kind, size_t n, const char *why)
{
    listing *l = ctx;
    if (n > 0)
        return;
    if (l->json) {
        begin_object(l);
        print_text("kind", kind);
        fputs(", ", stdout);
        print_text("reason", why);
        putchar('}');
    } else
        printf("%s: %s\n", kind, why);
}

static void list_library(void *ctx, const char *kind, const char *name, const char *version)
{
    listing *l = ctx;
    (void)kind;
    if (l->json) {
        fputs(l->first ? "" : ", ", stdout);
        print_text(name, version);
    } else
        printf("%s%s %s", l->first ? "libraries: " : ", ", name, version);
    l->first = false;
}

static int devices(int argc, char **argv);

const cli_command cli_devices = {
    .name = "devices",
    .summary = "lists the devices that train can use, and why others are missing",
    .usage = "[--json]",
    .details =
        "Device kinds other than cpu are modules. The reason why a kind is missing is printed\n"
        "after its name; in JSON it is in \"missing\".",
    .run = devices,
};

static int devices(int argc, char **argv)
{
    listing l = {.first = true};
    const cli_flag flags[] = {
        {.name = "json", .kind = CLI_SWITCH, .value = &l.json, .help = "print one object"}, {0}};
    const cli_flag *const tables[] = {flags, NULL};
    const char **rest = cli_words(argc);
    size_t n;
    int status = cli_parse(&cli_devices, tables, argc, argv, rest, &n);
    if (status < 0 && n)
        status = cli_usage(&cli_devices, "unexpected '%s'", rest[0]);
    mr_free(rest);
    if (status >= 0)
        return status;
    if (l.json)
        fputs("{\"devices\": [", stdout);
    mr_device_each(list_kind, &l);
    if (l.json)
        fputs("], \"missing\": [", stdout);
    l.first = true;
    mr_device_each(list_missing, &l);
    if (l.json)
        fputs("], \"libraries\": {", stdout);
    l.first = true;
    mr_device_each_library(list_library, &l);
    puts(l.json ? "}}" : "");
    return cli_flush(CLI_OK);
}
