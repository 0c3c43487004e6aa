/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_SAVED_MODEL_IMPL_H
#define MR_TRAINER_SAVED_MODEL_IMPL_H
/* What saved models and checkpoints share. */
#include <jansson.h>
#include "trainer/files/safetensors.h"
#include "trainer/files/saved_files.h"
#include "trainer/exchange/saved_model.h"

/* Of training.json and state.json; newer ones are refused. From 2 on their checksum, and those of
 * the files that have none of their own, must be there. */
enum { MR__SAVED_FORMAT = 2 };

/* Names that a saved model or checkpoint may have in it. */
bool mr__is_saved_name(const char *name);
/* Writes the files of a saved model into a directory that is there. */
mr_code mr__save_into(const mr_model *m, const char *directory, const mr_save_opts *opts,
                      mr_status *st) MR_NODISCARD;
/* Warns where m, which is built, has another precision than what was saved. */
void mr__saved_compare_precision(const mr_saved *saved, const mr_model *m);
/* One file of a directory: a JSON object, which gets an entry with the checksum, and tensors. */
mr_code mr__save_json(const char *directory, const char *name, json_t *v,
                      mr_status *st) MR_NODISCARD;
mr_code mr__save_tensors(const char *directory, const char *name, const mr_named_tensor *t,
                         size_t n, mr_status *st) MR_NODISCARD;
/* Are the n bytes of the file `name` of the directory those whose checksum v has, which was read
 * from there? Files of format 1 have none.
 * errors   MR_DATA_LOSS */
mr_code mr__check_bytes(const json_t *v, const char *directory, const char *name, const void *bytes,
                        size_t n, mr_status *st) MR_NODISCARD;
/* The same of all files that v has checksums of. */
mr_code mr__check_files(const json_t *v, const char *directory, mr_status *st) MR_NODISCARD;
/* v gets the checksums, "checksums": {name: .., ..}, a reference of its own; false: no memory. */
bool mr__add_checksums(json_t *v, json_t *sums);
bool mr__add_checksum(json_t *sums, const char *name, const void *bytes, size_t n);
/* A JSON value as text of *size bytes and a line's end, owned: mr_free. NULL: no memory. */
char *mr__json_text(const json_t *v, size_t flags, size_t *size);
/* Reads a JSON object and checks its format and checksum; *out owned: json_decref. */
mr_code mr__load_json(const char *directory, const char *name, json_t **out,
                      mr_status *st) MR_NODISCARD;
mr_code mr__load_tensors(const char *directory, const char *name, mr_safetensors **out,
                         mr_status *st) MR_NODISCARD;
/* Does t have this name, float32 values and this shape? what: "the model", whose v is.
 * errors   MR_INVALID_ARGUMENT: says what both have */
mr_code mr__check_tensor(const mr_named_tensor *t, const char *name, int rank, const int64_t *shape,
                         mr_status *st) MR_NODISCARD;
/* The values of a float32 tensor at an aligned address: its own, or a copy, which *owned is. */
mr_code mr__tensor_floats(const mr_named_tensor *t, const float **values, float **owned,
                          mr_status *st) MR_NODISCARD;
/* Does every tensor of the model have its values in f, and nothing else? Touches nothing. */
mr_code mr__check_weights(const mr_safetensors *f, const mr_model *m, mr_status *st) MR_NODISCARD;
/* The directory of the latest checkpoint in path, owned; *out NULL: path is no directory of
 * checkpoints. */
mr_code mr__latest_checkpoint(const char *path, char **out, mr_status *st) MR_NODISCARD;
const mr_safetensors *mr__saved_weights(const mr_saved *s);

/* In safetensors.c: writes tensors to an open file. */
mr_code mr__safetensors_put(mr_atomic_file *f, const mr_named_tensor *tensors, size_t n,
                            mr_status *st) MR_NODISCARD;
#endif
