/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_XML_TEXT_H
#define MR_PIPELINE_REMOTE_XML_TEXT_H
/* Texts in the XML documents that stores answer with.
 *
 * thread   any */
#include <stdbool.h>
#include <stddef.h>

/* Copies the text of the next <name> after *at to out, with entities decoded, and moves *at after
 * it. false: not found before `end`. */
bool mr__xml_text(const char **at, const char *end, const char *name, char *out, size_t room);
#endif
