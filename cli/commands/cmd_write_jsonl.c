/* SPDX-License-Identifier: Apache-2.0 */
/* A feature has one type in all lines, which a single line does not determine: [] may be of any
 * type, 1 may be a float among floats, and "nan" a float among numbers. The lines read so far
 * decide; if a later line changes a type, the rest is only scanned, and everything is written
 * again. */
#include "write.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <millrace/pipeline/formats/base64.h>
#include <millrace/pipeline/formats/tfrecord/example.h>
#include <millrace/pipeline/memory/alloc.h>

/* Kinds of values, bits of a set. Bools are integers. */
enum { INTEGER = 1, REAL = 2, SPECIAL = 4 /* "nan", "inf", "-inf" */, TEXT = 8, NUMBER = 3 };

typedef struct feature {
    unsigned kinds;
    bool written;
    int64_t line; /* position of the first number or text */
    const char *path;
} feature;

struct cli_jsonl {
    const cli_texts *files;
    const char *spool;
    FILE **copies;   /* for each file: its text, if it cannot be read twice; or NULL */
    json_t *numbers; /* feature -> its index */
    feature *features;
    size_t n, capacity;
    bool again;
    uint8_t *buffer; /* the record */
    size_t buffer_capacity;
    const char *path; /* of the current line */
    int64_t line;
};

cli_jsonl *cli_jsonl_new(const cli_texts *files, const char *spool)
{
    cli_jsonl *j = mr_calloc(1, sizeof *j);
    if (!j)
        return NULL;
    j->files = files;
    j->spool = spool;
    j->copies = mr_calloc(files->n, sizeof *j->copies);
    j->numbers = json_object();
    if (j->copies && j->numbers)
        return j;
    cli_jsonl_free(j);
    return NULL;
}

void cli_jsonl_free(cli_jsonl *j)
{
    if (!j)
        return;
    for (size_t i = 0; j->copies && i < j->files->n; i++)
        if (j->copies[i])
            fclose(j->copies[i]);
    mr_free(j->copies);
    mr_free(j->features);
    mr_free(j->buffer);
    json_decref(j->numbers);
    mr_free(j);
}

static mr_dtype type_of(unsigned kinds)
{
    if (kinds & TEXT || kinds == SPECIAL)
        return MR_STRING;
    return kinds & (REAL | SPECIAL) ? MR_FLOAT32 : MR_INT64;
}

/* ---- one value ---- */

/* *out: the bytes of base64 text as a JSON string. */
static mr_code decode_base64(const json_t *text, json_t **out, mr_status *st)
{
    const char *s = json_string_value(text);
    size_t n = json_string_length(text), size;
    char *bytes = mr_malloc(mr_base64_room(n) + 1);
    if (!bytes)
        return mr_fail_memory(st, n, "a string");
    bool good = mr_base64_decode(s, n, bytes, &size);
    *out = good ? json_stringn_nocheck(bytes, size) : NULL;
    mr_free(bytes);
    if (!good)
        return mr_fail(st, MR_INVALID_ARGUMENT, "'%.40s' is not base64", s);
    return *out ? MR_OK : mr_fail_memory(st, size, "a string");
}

/* The kind of *item; {"b64": text} becomes a new string of its bytes. */
static mr_code kind_of(const char *key, json_t **item, unsigned *kind, mr_status *st)
{
    const char *s = json_string_value(*item);
    const json_t *text = json_object_size(*item) == 1 ? json_object_get(*item, "b64") : NULL;
    if (json_is_integer(*item) || json_is_boolean(*item))
        *kind = INTEGER;
    else if (json_is_real(*item))
        *kind = REAL;
    else if (s)
        *kind = strcmp(s, "nan") == 0 || strcmp(s, "inf") == 0 || strcmp(s, "-inf") == 0 ? SPECIAL
                                                                                         : TEXT;
    else if (json_is_string(text)) {
        *kind = TEXT;
        return decode_base64(text, item, st);
    } else
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "\"%s\" is null, a nested list, or an object other than {\"b64\": BASE64}; "
                       "a feature is a number, a string, or a list of one of them",
                       key);
    return MR_OK;
}

/* The kinds in a value; strings in base64 are replaced. */
static mr_code look_at(json_t *object, const char *key, json_t *value, unsigned *kinds,
                       mr_status *st)
{
    bool list = json_is_array(value); /* value itself may be replaced and freed */
    *kinds = 0;
    for (size_t i = 0, n = list ? json_array_size(value) : 1; i < n; i++) {
        json_t *item = list ? json_array_get(value, i) : value, *was = item;
        unsigned kind = 0;
        MR_TRY(kind_of(key, &item, &kind, st));
        *kinds |= kind;
        if (item != was && (list ? json_array_set_new(value, i, item)
                                 : json_object_set_new_nocheck(object, key, item)))
            return mr_fail_memory(st, json_string_length(item), "a string");
    }
    if (*kinds & TEXT && *kinds & NUMBER)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "\"%s\" mixes strings and numbers; a feature has one type", key);
    return MR_OK;
}

/* ---- one line ---- */

static mr_code find_feature(cli_jsonl *j, const char *key, feature **out, mr_status *st)
{
    const json_t *number = json_object_get(j->numbers, key);
    if (!number) {
        MR_TRY(MR_GROW(j->features, j->capacity, j->n + 1, SIZE_MAX / sizeof *j->features,
                       "features", st));
        if (json_object_set_new_nocheck(j->numbers, key, json_integer((json_int_t)j->n)))
            return mr_fail_memory(st, strlen(key), "features");
        j->features[j->n++] = (feature){0};
        *out = &j->features[j->n - 1];
    } else
        *out = &j->features[json_integer_value(number)];
    return MR_OK;
}

/* Adds the kinds of a value to those of its feature. */
static mr_code learn(cli_jsonl *j, const char *key, feature *f, unsigned kinds, mr_status *st)
{
    unsigned all = f->kinds | kinds;
    if (all & TEXT && all & NUMBER)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "\"%.200s\" is a %s here and a %s in line %" PRId64
                       " of %.200s; a feature has one type",
                       key, kinds & TEXT ? "string" : "number", kinds & TEXT ? "number" : "string",
                       f->line, f->path);
    if (!f->path && kinds & (TEXT | NUMBER)) {
        f->line = j->line;
        f->path = j->path;
    }
    if (f->written && type_of(all) != type_of(f->kinds))
        j->again = true;
    f->kinds = all;
    f->written = true;
    return MR_OK;
}

static mr_code fill(mr_example_value *v, const json_t *value, mr_dtype dtype, mr_status *st)
{
    size_t n = json_is_array(value) ? json_array_size(value) : 1;
    size_t size = dtype == MR_STRING ? sizeof(mr_bytes) : mr_dtype_size(dtype);
    void *values = mr_calloc(n, size);
    if (!values)
        return mr_fail_memory(st, n * size, "a feature");
    v->dtype = dtype;
    v->values = values;
    v->n = n;
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_is_array(value) ? json_array_get(value, i) : value;
        if (dtype == MR_STRING)
            ((mr_bytes *)values)[i] = (mr_bytes){json_string_value(item), json_string_length(item)};
        else if (dtype == MR_FLOAT32) {
            float f = json_is_string(item)    ? strtof(json_string_value(item), NULL)
                      : json_is_integer(item) ? (float)json_integer_value(item)
                      : json_is_real(item)    ? (float)json_real_value(item)
                                              : (float)json_is_true(item);
            if (isinf(f) && !json_is_string(item))
                return mr_fail(st, MR_INVALID_ARGUMENT,
                               "\"%.200s\": %g is too large for float32, which floats of Examples "
                               "are",
                               v->name, json_real_value(item));
            ((float *)values)[i] = f;
        } else
            ((int64_t *)values)[i] =
                json_is_boolean(item) ? json_is_true(item) : json_integer_value(item);
    }
    return MR_OK;
}

static mr_code write_object(cli_jsonl *j, json_t *object, mr_shard_writer *w, mr_status *st)
{
    size_t n = json_object_size(object), i = 0, size = 0;
    mr_example_value *values = mr_calloc(n, sizeof *values);
    mr_code rc = values ? MR_OK : mr_fail_memory(st, n * sizeof *values, "features");
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        unsigned kinds;
        feature *f = NULL;
        if (rc == MR_OK)
            rc = look_at(object, key, value, &kinds, st);
        if (rc == MR_OK)
            rc = find_feature(j, key, &f, st);
        if (rc == MR_OK)
            rc = learn(j, key, f, kinds, st);
        if (rc != MR_OK)
            break;
        if (j->again)
            continue;
        values[i] = (mr_example_value){.name = key, .name_size = strlen(key)};
        rc = fill(&values[i++], json_object_get(object, key), type_of(f->kinds), st);
    }
    if (rc == MR_OK && !j->again)
        rc = mr_example_encode(values, n, &j->buffer, &j->buffer_capacity, &size, st);
    if (rc == MR_OK && !j->again)
        rc = mr_shard_writer_append(w, j->buffer, size, st);
    for (i = 0; values && i < n; i++)
        mr_free((void *)(uintptr_t)values[i].values);
    mr_free(values);
    return rc;
}

/* NaN, Infinity and -Infinity, which Python writes, as the strings that mean the same here. *out is
 * owned; NULL: out of memory, or the line has no such value. */
static char *respell(const char *line, size_t n, size_t *size)
{
    static const struct {
        const char *word, *to;
    } words[] = {{"NaN", "\"nan\""}, {"Infinity", "\"inf\""}, {"-Infinity", "\"-inf\""}};
    char *out = mr_malloc(2 * n + 1), *to = out;
    bool within = false, found = false;
    for (size_t i = 0; out && i < n;) {
        size_t k = 0;
        while (k < 3 && (within || n - i < strlen(words[k].word) ||
                         memcmp(line + i, words[k].word, strlen(words[k].word)) != 0))
            k++;
        if (k < 3) {
            to = stpcpy(to, words[k].to);
            i += strlen(words[k].word);
            found = true;
            continue;
        }
        if (within && line[i] == '\\' && i + 1 < n)
            *to++ = line[i++];
        else if (line[i] == '"')
            within = !within;
        *to++ = line[i++];
    }
    *size = (size_t)(to - out);
    if (!found) {
        mr_free(out);
        return NULL;
    }
    return out;
}

/* Numbers with more digits than a double holds would be rounded twice: by jansson, and to float32.
 * They are replaced by the float32 that they round to. *out is owned; NULL: out of memory, or there
 * is no such number. */
static char *round_once(const char *line, size_t n, size_t *size)
{
    enum { DIGITS = 17, ROOM = 24 };
    char *out = NULL, *to = NULL;
    bool within = false;
    for (size_t i = 0; i < n;) {
        size_t k = 0;
        while (!within && i + k < n && line[i + k] && strchr("+-.eE0123456789", line[i + k]))
            k++;
        char *number = k > DIGITS ? mr_strndup(line + i, k) : NULL;
        float once = number ? strtof(number, NULL) : 0;
        bool twice = number && strpbrk(number, ".eE") && isfinite(once) &&
                     (float)strtod(number, NULL) != once;
        mr_free(number);
        if (twice && !out) {
            out = to = mr_malloc(n + n / DIGITS * ROOM + ROOM);
            if (!out)
                return NULL;
            memcpy(out, line, i);
            to += i;
        }
        if (twice) {
            to += snprintf(to, ROOM, "%.9e", (double)once);
            i += k;
            continue;
        }
        if (!k) {
            k = within && line[i] == '\\' && i + 1 < n ? 2 : 1;
            within ^= line[i] == '"';
        }
        if (out)
            to = (char *)memcpy(to, line + i, k) + k;
        i += k;
    }
    *size = (size_t)(to - out);
    return out;
}

static json_t *parse(const char *line, size_t n, json_error_t *why)
{
    enum { FLAGS = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL };
    size_t size;
    char *rounded = round_once(line, n, &size);
    if (rounded) {
        line = rounded;
        n = size;
    }
    json_t *object = json_loadb(line, n, FLAGS, why);
    char *other = object ? NULL : respell(line, n, &size);
    if (other)
        object = json_loadb(other, size, FLAGS, why);
    mr_free(other);
    mr_free(rounded);
    return object;
}

static mr_code write_line(cli_jsonl *j, const char *line, size_t n, mr_shard_writer *w,
                          mr_status *st)
{
    json_error_t why;
    const char *zero = memchr(line, '\0', n); /* jansson passes over it after a number */
    json_t *object = zero ? NULL : parse(line, n, &why);
    mr_code rc;
    if (zero)
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "not JSON: a byte of zero at column %td",
                     zero - line + 1);
    else if (!object && json_error_code(&why) == json_error_numeric_overflow)
        rc = mr_fail(st, MR_INVALID_ARGUMENT,
                     "%s: integers go from -9223372036854775808 to 9223372036854775807", why.text);
    else if (!object)
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "not JSON: %s at column %d", why.text, why.column);
    else if (!json_is_object(object))
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "a line must be a JSON object");
    else
        rc = write_object(j, object, w, st);
    json_decref(object);
    if (rc == MR_INVALID_ARGUMENT) {
        char message[sizeof st->message];
        memcpy(message, st->message, sizeof message);
        mr_fail(st, rc, "line %" PRId64 ": %.700s", j->line, message);
    }
    return rc;
}

/* ---- files ---- */

static FILE *open_spool(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? mr_strdup(path) : NULL;
    if (folder)
        folder[slash - path + 1] = '\0';
    int fd = open(folder ? folder : ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    mr_free(folder);
    return fd >= 0 ? fdopen(fd, "w+b") : tmpfile(); /* not every file system has O_TMPFILE */
}

/* The lines of a text that ends with \n or at the end of the file; in it they may end with \r. */
static mr_code write_lines(cli_jsonl *j, const char *text, size_t n, mr_shard_writer *w,
                           mr_status *st)
{
    static const char mark[] = "\xEF\xBB\xBF"; /* before a text, without a meaning */
    const char *end = text + n;
    if (j->line == 1 && n >= 2 &&
        (memcmp(text, "\xFF\xFE", 2) == 0 || memcmp(text, "\xFE\xFF", 2) == 0))
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "the file is UTF-16; convert it to UTF-8, as with 'iconv -f UTF-16 -t UTF-8'");
    while (text < end) {
        size_t skip = end - text >= 3 && memcmp(text, mark, 3) == 0 ? 3 : 0;
        const char *stop = memchr(text, '\r', (size_t)(end - text));
        stop = stop ? stop : end;
        size_t size = (size_t)(stop - text);
        size_t blank = skip;
        while (blank < size && strchr(" \t\n", text[blank]) && text[blank])
            blank++;
        if (blank < size)
            MR_TRY(write_line(j, text + skip, size - skip, w, st));
        bool two = end - stop > 1 && stop[1] == '\n';
        text = stop == end ? end : stop + 1 + two;
        j->line++;
    }
    return MR_OK;
}

static mr_code read_lines(cli_jsonl *j, FILE *f, FILE *copy, mr_shard_writer *w, mr_status *st)
{
    char *text = NULL;
    size_t room = 0;
    ssize_t n;
    mr_code rc = MR_OK;
    j->line = 1;
    while (rc == MR_OK && (n = getline(&text, &room, f)) >= 0) {
        if (cli_interrupted())
            rc = mr_fail(st, MR_CANCELLED, "interrupted");
        else if (copy && fwrite(text, 1, (size_t)n, copy) != (size_t)n)
            rc = mr_fail_errno(st, errno, "cannot write a copy");
        else
            rc = write_lines(j, text, (size_t)n, w, st);
    }
    if (rc == MR_OK && copy && fflush(copy) != 0)
        rc = mr_fail_errno(st, errno, "cannot write a copy");
    if (rc == MR_OK && ferror(f))
        rc = mr_fail_errno(st, errno, "cannot read the file");
    free(text);
    return rc;
}

static mr_code write_file(cli_jsonl *j, size_t i, mr_shard_writer *w, mr_status *st)
{
    FILE *f = j->copies[i], *copy = NULL;
    mr_code rc = MR_OK;
    j->path = j->files->v[i];
    if (f)
        rewind(f);
    else {
        f = strcmp(j->path, "-") == 0 ? stdin : fopen(j->path, "rb");
        if (!f)
            rc = mr_fail_errno(st, errno, "cannot open the file");
        else if ((f == stdin || fseek(f, 0, SEEK_CUR) != 0) &&
                 !(copy = j->copies[i] = open_spool(j->spool)))
            rc = mr_fail_errno(st, errno, "cannot create a copy");
    }
    if (rc == MR_OK)
        rc = read_lines(j, f, copy, w, st);
    if (rc != MR_OK)
        mr_status_at(st, j->path, -1, -1);
    if (f && f != stdin && f != j->copies[i])
        fclose(f);
    return rc;
}

mr_code cli_jsonl_write(cli_jsonl *j, mr_shard_writer *w, bool *again, mr_status *st)
{
    j->again = false;
    for (size_t i = 0; i < j->files->n; i++)
        MR_TRY(write_file(j, i, w, st));
    *again = j->again;
    return MR_OK;
}
