/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_FILE_CONTENTS_H
#define MR_PIPELINE_FORMATS_FILE_CONTENTS_H
/* Whole files as records: one record per file, with at most 4 GiB; an empty file has an empty
 * record. */
#include "pipeline/formats/reader.h"

extern const mr_format mr__format_contents;
#endif
