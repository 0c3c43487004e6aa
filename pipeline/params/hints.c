/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/params/hints.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define FUNCTION  "; a function is written x => x + 1, or (a, b) => a + b"
#define FILE_NAME "; a file name is written in quotes, as in tfrecord(\"train-*.tfrecord\")"
#define FEATURE   "; a component of a record is written x[\"label\"]"
#define BARE      "; functions and ops have no prefix, as in sum(x) or range(10)"
#define TAR       "; archives of samples are read by tar(files)"
#define CONVERT   " cannot be read; convert them to TFRecord or Parquet files"
#define NO_IMAGE  " images cannot be decoded; convert them to JPEG or PNG"
#define SOURCE    "; a pipeline begins with a source, as in range(10) or tfrecord(\"a.tfrecord\")"

typedef struct rule {
    const char *found, *hint;
} rule;

/* Whole words. In a dotted name, the last word with a rule decides. */
static const rule words[] = {
    {"lambda", FUNCTION},
    {"def", FUNCTION},
    {"function", FUNCTION},
    {"True", "; write true"},
    {"TRUE", "; write true"},
    {"False", "; write false"},
    {"FALSE", "; write false"},
    {"None", "; write none"},
    {"null", "; write none"},
    {"NULL", "; write none"},
    {"nil", "; write none"},
    {"AUTOTUNE", "; write auto"},
    {"AUTO", "; write auto"},
    {"AND", "; write and"},
    {"OR", "; write or"},
    {"NOT", "; write not"},
    {"is", "; write =="},
    {"in", "; write x == a or x == b"},
    {"elif", "; write a if c else b if d else e"},
    {"len", "; write length(x) for axis 0, size(x) for all values"},
    {"int", "; write cast(x, \"int64\")"},
    {"float", "; write cast(x, \"float32\")"},
    {"bool", "; write cast(x, \"bool\")"},
    {"astype", "; write cast(x, \"float32\")"},
    {"shape", "; length(x) is the size of axis 0, size(x) counts values"},
    {"str", "; write format(\"{}\", x)"},
    {"reduce_sum", "; write sum(x)"},
    {"reduce_mean", "; write mean(x)"},
    {"reduce_min", "; write min(x)"},
    {"reduce_max", "; write max(x)"},
    {"reduce_any", "; write any(x)"},
    {"reduce_all", "; write all(x)"},
    {"reduce", "; use the command millrace reduce, or mr_reduce in C"},
    {"cardinality", "; 'millrace explain' prints the number of elements"},
    {"element_spec", "; 'millrace show --spec' prints it"},
    {"from_generator", "; generators are made in C only, by mr_from_generator"},
    {"TFRecordDataset", "; write tfrecord(files)"},
    {"TextLineDataset", "; write text_line(files)"},
    {"FixedLengthRecordDataset", "; write fixed_length_record(files, record_bytes)"},
    {"webdataset", TAR},
    {"WebDataset", TAR},
    {"WebLoader", TAR},
    {"wds", TAR},
    {"arrayrecord", "; ArrayRecord files" CONVERT},
    {"array_record", "; ArrayRecord files" CONVERT},
    {"ArrayRecordDataset", "; ArrayRecord files" CONVERT},
    {"ArrayRecordDataSource", "; ArrayRecord files" CONVERT},
    {"mds", "; MDS files" CONVERT},
    {"MDS", "; MDS files" CONVERT},
    {"MDSWriter", "; MDS files" CONVERT},
    {"StreamingDataset", "; MDS files" CONVERT},
    {"beton", "; Beton files" CONVERT},
    {"lmdb", "; LMDB files" CONVERT},
    {"hdf5", "; HDF5 files" CONVERT},
    {"h5py", "; HDF5 files" CONVERT},
    {"zarr", "; Zarr stores" CONVERT},
    {"avro", "; Avro files" CONVERT},
    {"orc", "; ORC files" CONVERT},
    {"read_parquet", "; write parquet(files)"},
    {"ParquetDataset", "; write parquet(files)"},
    {"read_csv", "; write csv(files, columns)"},
    {"CsvDataset", "; write csv(files, columns)"},
    {"read_json", "; write jsonl(files, features)"},
    {"load_dataset", "; datasets are read from files, as in parquet(\"train-*.parquet\")"},
    {"ImageFolder", "; write image_folder(directory)"},
    {"image_dataset_from_directory", "; write image_folder(directory)"},
    {"imread", "; write decode_image(read_file(x))"},
    {"decode_webp", "; WebP" NO_IMAGE},
    {"decode_gif", "; GIF" NO_IMAGE},
    {"decode_bmp", "; BMP" NO_IMAGE},
    {"decode_tiff", "; TIFF" NO_IMAGE},
    {"decode_avif", "; AVIF" NO_IMAGE},
    {"decode_heic", "; HEIC" NO_IMAGE},
    {"decode_jpeg2000", "; JPEG 2000" NO_IMAGE},
    {"Dataset", SOURCE},
    {"tf", BARE},
    {"np", BARE},
    {"numpy", BARE},
    {"jnp", BARE},
    {"torch", BARE}};

/* Signs that start at the token, or up to two characters before it. */
static const rule signs[] = {{"->", FUNCTION},
                             {"&&", "; write and"},
                             {"||", "; write or"},
                             {"&", "; write and"},
                             {"|", "; write or"},
                             {"===", "; write =="},
                             {"<>", "; write !="},
                             {"^", "; write ** for a power"},
                             {" ? ", "; write a if condition else b"},
                             {";", "; a pipeline is one expression, without a semicolon"},
                             {"+=", "; expressions cannot assign; write x + 1"},
                             {"-=", "; expressions cannot assign; write x - 1"},
                             {"++", "; expressions cannot assign; write x + 1"}};

static bool in_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static const char *find_word(const char *s, size_t n)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i].found) == n && memcmp(words[i].found, s, n) == 0)
            return words[i].hint;
    return NULL;
}

/* The hint of the last word in text[begin, end) that has one. */
static const char *last_word(const char *text, size_t begin, size_t end)
{
    while (end > begin) {
        size_t from = end;
        while (from > begin && in_word(text[from - 1]))
            from--;
        const char *hint = from < end ? find_word(text + from, end - from) : NULL;
        if (hint)
            return hint;
        end = from > begin ? from - 1 : begin;
    }
    return NULL;
}

static const char *find_sign(const char *text, size_t size, size_t at)
{
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        size_t n = strlen(signs[i].found);
        for (size_t back = 0; back < n && back <= at; back++)
            if (size - (at - back) >= n && memcmp(text + at - back, signs[i].found, n) == 0)
                return signs[i].hint;
    }
    return NULL;
}

static bool in_path(char c)
{
    return in_word(c) || (c && strchr("./-*~:+@", c));
}

/* True if text[begin, end) looks like a file name: it starts like a path, or has an extension that
 * is not the name of a method. */
static bool is_path(const char *text, size_t size, size_t begin, size_t end)
{
    const char *s = text + begin;
    size_t n = end - begin, dot = n;
    if (n < 2)
        return false;
    if (s[0] == '/' || s[0] == '~' || memcmp(s, "./", 2) == 0 || memcmp(s, "..", 2) == 0)
        return true;
    for (size_t i = 0; i + 2 < n; i++)
        if (memcmp(s + i, "://", 3) == 0)
            return true;
    while (dot > 0 && in_word(s[dot - 1]))
        dot--;
    return dot > 1 && dot < n && s[dot - 1] == '.' && !(end < size && text[end] == '(');
}

static bool in_function(const char *text, size_t at)
{
    while (at >= 2 && memcmp(text + at - 2, "=>", 2) != 0)
        at--;
    return at >= 2;
}

const char *mr__hint(const char *text, size_t size, size_t at)
{
    if (at > size)
        at = size;
    size_t begin = at, end = at, path_begin = at, path_end = at;
    while (begin > 0 && (in_word(text[begin - 1]) || text[begin - 1] == '.'))
        begin--;
    while (end < size && (in_word(text[end]) || text[end] == '.'))
        end++;
    const char *hint = last_word(text, begin, end);
    if (!hint && begin == at) {
        /* In "lambda x" the word before the token is the unexpected one. */
        size_t space = at;
        while (space > 0 && text[space - 1] == ' ')
            space--;
        size_t word = space;
        while (word > 0 && in_word(text[word - 1]))
            word--;
        hint = word < space ? find_word(text + word, space - word) : NULL;
    }
    if (!hint)
        hint = find_sign(text, size, at);
    while (path_begin > 0 && in_path(text[path_begin - 1]))
        path_begin--;
    while (path_end < size && in_path(text[path_end]))
        path_end++;
    if (!hint && is_path(text, size, path_begin, path_end))
        hint = in_function(text, path_begin) && path_begin == begin ? FEATURE : FILE_NAME;
    return hint ? hint : "";
}

enum { PART_ROOM = 80 };

/* As it is written in an expression. */
static void write_part(const mr_spec *whole, size_t i, const char *name, char text[PART_ROOM])
{
    const char *key = mr_spec_child_name(whole, i);
    if (key)
        snprintf(text, PART_ROOM, "%.30s[\"%.30s\"]", name, key);
    else
        snprintf(text, PART_ROOM, "%.30s[%zu]", name, i);
}

void mr__hint_of_datasets(const mr_spec *spec, const char *name, char text[MR__HINT_ROOM])
{
    char first[PART_ROOM], second[PART_ROOM];
    text[0] = '\0';
    if (!spec || mr_spec_kind_of(spec) == MR_SPEC_LEAF || mr_spec_n_leaves(spec) == 0)
        return;
    for (size_t i = 0; i < mr_spec_n_leaves(spec); i++)
        if (mr_spec_leaf(spec, i)->dtype != MR_DATASET)
            return;
    const char *what = mr_spec_kind_of(spec) == MR_SPEC_RECORD ? "record" : "tuple";
    name = name ? name : "w";
    write_part(spec, 0, name, first);
    if (mr_spec_n_children(spec) == 1)
        snprintf(text, MR__HINT_ROOM, "; %.30s is a %s of datasets: write %s", name, what, first);
    else {
        write_part(spec, 1, name, second);
        snprintf(text, MR__HINT_ROOM,
                 "; %.30s is a %s of datasets, one for each component: write %s, or "
                 "zip(%s, %s)",
                 name, what, first, first, second);
    }
}
