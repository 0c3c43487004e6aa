/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_FILES_JSON_FILE_H
#define MR_TRAINER_FILES_JSON_FILE_H
/* The JSON files of saved models and checkpoints. The last entry of such an object, "crc32c", is
 * the CRC-32C of the file with eight zeros as its value; "checksums" has those of other files,
 * which do not contain one, by name.
 *
 * thread   any */
#include <jansson.h>
#include <stdbool.h>
#include "pipeline/status.h"

/* The "format" of these files; newer ones are refused. Since 2 all checksums are mandatory. */
enum { MR__SAVED_FORMAT = 2 };

/* A number that may be infinite or NaN, which JSON lacks: written as the strings "inf", "-inf" and
 * "nan". read: false for anything else. */
json_t *mr__json_number(double v);
bool mr__read_json_number(const json_t *v, double *out);
/* A JSON value as text of *size bytes and a newline; owned: mr_free. NULL: no memory. */
char *mr__json_text(const json_t *v, size_t flags, size_t *size);

/* Writes directory/name, not atomically: the directory is renamed when it is complete. */
mr_code mr__save_bytes(const char *directory, const char *name, const void *bytes, size_t n,
                       mr_status *st) MR_NODISCARD;
/* Reads the whole file, and appends a NUL byte; owned: mr_free. */
mr_code mr__load_bytes(const char *directory, const char *name, void **bytes, size_t *size,
                       mr_status *st) MR_NODISCARD;

/* Adds the checksum of the file `name` to sums, and sums to v; false: no memory. */
bool mr__add_checksum(json_t *sums, const char *name, const void *bytes, size_t n);
bool mr__add_checksums(json_t *v, json_t *sums);
/* Checks the n bytes of directory/name against v, read from the same directory. Passes without a
 * checksum in format 1.
 * errors   MR_DATA_LOSS */
mr_code mr__check_bytes(const json_t *v, const char *directory, const char *name, const void *bytes,
                        size_t n, mr_status *st) MR_NODISCARD;
/* Checks every file for which v has a checksum. */
mr_code mr__check_files(const json_t *v, const char *directory, mr_status *st) MR_NODISCARD;

/* Writes an object, and adds its checksum. */
mr_code mr__save_json(const char *directory, const char *name, json_t *v,
                      mr_status *st) MR_NODISCARD;
/* The same, atomically. */
mr_code mr__replace_json(const char *directory, const char *name, json_t *v,
                         mr_status *st) MR_NODISCARD;
/* Reads an object and checks its format and checksum; *out owned: json_decref. */
mr_code mr__load_json(const char *directory, const char *name, json_t **out,
                      mr_status *st) MR_NODISCARD;
#endif
