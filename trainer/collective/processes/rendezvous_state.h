/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_CLUSTER_MEETING_STATE_H
#define MR_TRAINER_CLUSTER_MEETING_STATE_H
/* Inside of a meeting: its connections and what is known of each rank. Private to meeting*.c. */
#include "trainer/collective/processes/rendezvous.h"
#include "transport/net/address.h"

typedef enum mr__role {
    MR__INCOMING, /* it has not said yet who it is */
    MR__CONTROL,  /* short messages with `rank` */
    MR__DATA,     /* values to the next rank, or from the one before */
    MR__SELF      /* this process dials its own address, to see that no other one answers */
} mr__role;

typedef struct mr__talk mr__talk;
struct mr__talk {
    mr__talk *next;
    int fd; /* -1: ended; freed in the next round */
    mr__role role;
    uint32_t rank;
    bool connecting, incoming, local;
    int64_t since_ns;
    unsigned char head[MR__HEAD_BYTES], *payload;
    bool has_head;
    size_t got, bytes;
    uint32_t version;
    mr__word word;
    int passed; /* a descriptor that came with the bytes; -1: none */
    mr__saying out;
};

typedef struct mr__known {
    char address[200]; /* "": not known yet */
    bool met, dialing;
    mr__address to;
    int64_t dial_at_ns, delay_ns;
    char error[160]; /* why it could not be reached the last time */
    mr__hello hello;
    unsigned char *hello_bytes; /* owned */
    mr__talk *control;
} mr__known;

typedef struct mr__meeting {
    const mr__meeting_opts *o;
    uint32_t rank, world, n_met;
    bool all_addresses; /* known to everyone, from TF_CONFIG */
    mr__hello hello;    /* of this process */
    char node[128], host_id[128], local_name[64];
    mr__known *known;
    mr__talk *talks;
    size_t n_talks;
    int listener, local_listener;
    int64_t now_ns, deadline_ns;
    bool self_dialed, table_came, compared, dialing_next, next_ready;
    mr__way next, prev; /* fd -1: not yet */
} mr__meeting;

/* meeting_io.c */
/* Listens, and fills in the port and the local name of the hello. */
mr_code mr__meeting_listen(mr__meeting *m, mr_status *st) MR_NODISCARD;
/* Connects; where that fails at once, *out is NULL and known->error says why. region_fd: sent with
 * the first bytes (-1: none); local: to the unix socket of that name, not to its address. */
mr_code mr__meeting_dial(mr__meeting *m, uint32_t rank, mr__role role, const char *local,
                         mr__talk **out, mr_status *st) MR_NODISCARD;
/* Takes one waiting connection; *out NULL: there is none. */
mr_code mr__meeting_accept(mr__meeting *m, int listener, bool local, mr__talk **out,
                           mr_status *st) MR_NODISCARD;
/* Sends what the socket takes. false: the connection is gone, and why says so. */
bool mr__talk_send(mr__talk *t, mr_status *why);
/* Reads on. *whole: a frame is there, in head and payload, until mr__talk_next. false as above. */
bool mr__talk_receive(mr__talk *t, bool *whole, mr_status *why);
void mr__talk_next(mr__talk *t);
/* The peer's address as the kernel has it, and its port replaced where port is not 0. */
void mr__talk_address(const mr__talk *t, uint32_t port, mr__address *out);
void mr__talk_end(mr__talk *t); /* closes */
/* Frees those that ended. */
void mr__meeting_sweep(mr__meeting *m);
/* Sends bytes and a descriptor. */
mr_code mr__send_descriptor(int fd, const mr__saying *o, int descriptor,
                            mr_status *st) MR_NODISCARD;
/* Says to all what ended the meeting, as far as they listen, and closes everything. */
void mr__meeting_close(mr__meeting *m, const mr_status *why);
#endif
