/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/files/json_file.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "pipeline/crc32c.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/version.h"
#include "trainer/files/saved_files.h"

enum { MAX_JSON = 1 << 24 };

/* ---- values and text ---- */

json_t *mr__json_number(double v)
{
    if (isfinite(v))
        return json_real(v);
    return json_string(isnan(v) ? "nan" : v < 0 ? "-inf" : "inf");
}

bool mr__read_json_number(const json_t *v, double *out)
{
    const char *text = json_string_value(v);
    if (json_is_number(v))
        *out = json_number_value(v);
    else if (text && strcmp(text, "nan") == 0)
        *out = (double)NAN;
    else if (text && (strcmp(text, "inf") == 0 || strcmp(text, "-inf") == 0))
        *out = *text == '-' ? -(double)INFINITY : (double)INFINITY;
    else
        return false;
    return true;
}

char *mr__json_text(const json_t *v, size_t flags, size_t *size)
{
    *size = v ? json_dumpb(v, NULL, 0, flags) : 0;
    char *text = *size ? mr_malloc(*size + 1) : NULL;
    if (text && json_dumpb(v, text, *size, flags) != *size) {
        mr_free(text);
        return NULL;
    }
    if (text)
        text[*size] = '\n';
    return text;
}

/* ---- files ---- */

mr_code mr__save_bytes(const char *directory, const char *name, const void *bytes, size_t n,
                       mr_status *st)
{
    char *path = mr__path_in(directory, name);
    if (!path)
        return mr_fail_memory(st, strlen(directory), "a file name");
    mr_code rc = mr__write_in_place(path, bytes, n, st);
    mr_free(path);
    return rc;
}

mr_code mr__load_bytes(const char *directory, const char *name, void **bytes, size_t *size,
                       mr_status *st)
{
    char *path = mr__path_in(directory, name);
    if (!path)
        return mr_fail_memory(st, strlen(directory), "a file name");
    mr_code rc = mr_file_read(path, &mr__of_saved, bytes, size, st);
    mr_free(path);
    return rc;
}

/* ---- checksums ---- */

static const char checksum_key[] = "crc32c", no_checksum[] = "00000000",
                  checksums_key[] = "checksums"; /* of other files, by name */

enum { CHECKSUM = 9 };

static void checksum(char text[CHECKSUM], const void *bytes, size_t n)
{
    snprintf(text, CHECKSUM, "%08" PRIx32, mr_crc32c(bytes, n));
}

bool mr__add_checksum(json_t *sums, const char *name, const void *bytes, size_t n)
{
    char text[CHECKSUM];
    checksum(text, bytes, n);
    return json_object_set_new(sums, name, json_string(text)) == 0;
}

bool mr__add_checksums(json_t *v, json_t *sums)
{
    return json_object_set(v, checksums_key, sums) == 0;
}

static bool has_checksums(const json_t *v)
{
    return json_integer_value(json_object_get(v, "format")) > 1;
}

mr_code mr__check_bytes(const json_t *v, const char *directory, const char *name, const void *bytes,
                        size_t n, mr_status *st)
{
    char have[CHECKSUM];
    const char *want = json_string_value(json_object_get(json_object_get(v, checksums_key), name));
    checksum(have, bytes, n);
    if (want ? strcmp(want, have) == 0 : !has_checksums(v))
        return MR_OK;
    mr_fail(st, MR_DATA_LOSS,
            "%s has the CRC-32C %s, but should have %.16s; the file is damaged, or was edited "
            "(saved_models.md explains how to)",
            name, have, want ? want : "one that is missing");
    char *path = mr__path_in(directory, name);
    mr_status_at(st, path, -1, -1);
    mr_free(path);
    return MR_DATA_LOSS;
}

/* The last occurrence of a checksum's digits in n bytes; NULL: none. */
static char *find_digits(char *text, size_t n, const char *digits)
{
    size_t size = strlen(digits);
    for (size_t i = n; i-- > size;)
        if (memcmp(text + i - size, digits, size) == 0)
            return text + i - size;
    return NULL;
}

/* *out (owned) = the text of v, *n bytes, with its checksum. */
static mr_code text_of(json_t *v, const char *name, char **out, size_t *n, mr_status *st)
{
    char sum[CHECKSUM], *text = NULL;
    if (json_object_set_new(v, checksum_key, json_string(no_checksum)) == 0)
        text = mr__json_text(v, JSON_INDENT(2), n);
    if (!text)
        return mr_fail_memory(st, 0, name);
    ++*n; /* its line end */
    checksum(sum, text, *n);
    memcpy(find_digits(text, *n, no_checksum), sum, sizeof sum - 1);
    *out = text;
    return MR_OK;
}

mr_code mr__save_json(const char *directory, const char *name, json_t *v, mr_status *st)
{
    size_t n;
    char *text;
    MR_TRY(text_of(v, name, &text, &n, st));
    mr_code rc = mr__save_bytes(directory, name, text, n, st);
    mr_free(text);
    return rc;
}

mr_code mr__replace_json(const char *directory, const char *name, json_t *v, mr_status *st)
{
    size_t n;
    char *text;
    MR_TRY(text_of(v, name, &text, &n, st));
    char *path = mr__path_in(directory, name);
    mr_code rc = path ? mr_file_replace(path, text, n, st)
                      : mr_fail_memory(st, strlen(directory), "a file name");
    mr_free(path);
    mr_free(text);
    return rc;
}

static mr_code check_format(const json_t *v, const char *name, mr_status *st)
{
    const json_t *format = json_object_get(v, "format");
    const char *by = json_string_value(json_object_get(v, "millrace"));
    if (!json_is_object(v) || !json_is_integer(format) || json_integer_value(format) < 1)
        return mr_fail(st, MR_DATA_LOSS, "this is not the %s of a saved model: it names no format",
                       name);
    if (json_integer_value(format) > MR__SAVED_FORMAT)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "it has format %" JSON_INTEGER_FORMAT
                       " and was written by Millrace %s; this one (%s) reads up to format %d: use "
                       "a newer release",
                       json_integer_value(format), by ? by : "of an unknown version", MR_VERSION,
                       MR__SAVED_FORMAT);
    return MR_OK;
}

/* In format 1 they are optional. */
static mr_code check_sum(const json_t *v, char *bytes, size_t size, const char *name, mr_status *st)
{
    const json_t *entry = json_object_get(v, checksum_key);
    const char *want = json_string_value(entry);
    char have[CHECKSUM];
    char *at = want && strlen(want) == sizeof have - 1 ? find_digits(bytes, size, want) : NULL;
    if (!entry && !has_checksums(v))
        return MR_OK;
    if (!at)
        return mr_fail(st, MR_DATA_LOSS, "%s: %s is missing or invalid", name, checksum_key);
    memcpy(at, no_checksum, sizeof have - 1);
    checksum(have, bytes, size);
    if (strcmp(want, have) == 0)
        return MR_OK;
    return mr_fail(st, MR_DATA_LOSS,
                   "%s has the CRC-32C %s, but says %s; the file is damaged, or was edited "
                   "(saved_models.md explains how to)",
                   name, have, want);
}

mr_code mr__load_json(const char *directory, const char *name, json_t **out, mr_status *st)
{
    void *bytes;
    size_t size;
    json_error_t error;
    json_t *v = NULL;
    mr_code rc = MR_OK;
    MR_TRY(mr__load_bytes(directory, name, &bytes, &size, st));
    if (size > MAX_JSON)
        rc = mr_fail(st, MR_DATA_LOSS, "%s is larger than any that Millrace writes", name);
    else if (!(v = json_loadb(bytes, size, JSON_REJECT_DUPLICATES, &error)))
        rc =
            mr_fail(st, MR_DATA_LOSS, "%s is not JSON: %s (line %d)", name, error.text, error.line);
    else
        rc = check_format(v, name, st);
    if (rc == MR_OK)
        rc = check_sum(v, bytes, size, name, st);
    mr_free(bytes);
    if (rc == MR_OK) {
        *out = v;
        return MR_OK;
    }
    json_decref(v);
    char *path = mr__path_in(directory, name);
    mr_status_at(st, path, -1, -1);
    mr_free(path);
    return rc;
}

mr_code mr__check_files(const json_t *v, const char *directory, mr_status *st)
{
    const char *name;
    json_t *sum;
    json_object_foreach(json_object_get(v, checksums_key), name, sum)
    {
        void *bytes;
        size_t n;
        if (*name == '/' || strstr(name, ".."))
            return mr_fail(st, MR_DATA_LOSS, "%s/%.200s is not a file of a saved model", directory,
                           name);
        MR_TRY(mr__load_bytes(directory, name, &bytes, &n, st));
        mr_code rc = mr__check_bytes(v, directory, name, bytes, n, st);
        mr_free(bytes);
        MR_TRY(rc);
    }
    return MR_OK;
}
