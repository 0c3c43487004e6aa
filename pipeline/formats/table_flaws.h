/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_FORMATS_TABLE_FLAWS_H
#define MR_PIPELINE_FORMATS_TABLE_FLAWS_H
/* Why a row or a column of a table cannot be read, shared by all formats with rows. */
#define MR__TABLE_NULL                                                                             \
    "the row has a null, which elements cannot have; give the column a default, as in "            \
    "schema={\"x\": feature(int64, default=0)}, fill or drop nulls first, or skip such rows "      \
    "with ignore_errors()"
#define MR__TABLE_NULL_WITHIN                                                                      \
    "the row has a null within a list, which elements cannot have; fill or drop nulls first, or "  \
    "skip such rows with ignore_errors()"
#define MR__TABLE_ALL_NULL                                                                         \
    "its type is null: it has no other values; a schema may give it a default, as in "             \
    "feature(int64, default=0)"
#define MR__TABLE_NULL_LISTS                                                                       \
    "it holds lists of the type null, which have no values; leave it out (columns, schema), or "   \
    "write it as lists of another type"
#define MR__TABLE_UNEVEN                                                                           \
    "the row's lists from the third level on differ in length, which is not possible in an "       \
    "element; pad them first, leave the column out (columns, schema), or skip such rows with "     \
    "ignore_errors()"
#endif
