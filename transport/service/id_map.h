/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_ID_MAP_H
#define MR_TRANSPORT_SERVICE_ID_MAP_H
/* Maps numbers (not 0) to pointers: open addressing with linear probing, at most half full. Zeroed
 * memory is an empty map.
 *
 * thread   one at a time per object */
#include <stddef.h>
#include <stdint.h>
#include "pipeline/status.h"

typedef struct mr__id_map {
    struct mr__id_slot {
        uint64_t id; /* 0: free */
        void *value;
    } * slots;
    size_t size, n; /* size: a power of two */
} mr__id_map;

void *mr__id_map_get(const mr__id_map *m, uint64_t id); /* NULL: none */
/* errors   MR_RESOURCE_EXHAUSTED: the map is unchanged */
mr_code mr__id_map_set(mr__id_map *m, uint64_t id, void *value, mr_status *st) MR_NODISCARD;
void mr__id_map_remove(mr__id_map *m, uint64_t id);
void mr__id_map_reset(mr__id_map *m);
#endif
