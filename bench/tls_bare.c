/* SPDX-License-Identifier: Apache-2.0 */
/* The least that OpenSSL takes to send rows through loopback TCP from one process to another: the
 * ceiling of bench/tls.py, which runs it.
 *
 *     tls_bare CERT KEY GB WAY
 *
 * WAY: `plain` is send and recv; `socket` lets OpenSSL read and write the socket; `memory`, with a
 * number of records after it, gives OpenSSL buffers in memory that hold this number. Prints the
 * processor time per GB of both processes together, and the cipher. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROW = 1 << 20, RECORD = 16 << 10, WITH_FRAME = RECORD + 256 };

static _Noreturn void die(const char *what)
{
    perror(what);
    ERR_print_errors_fp(stderr);
    exit(1);
}

/* ---- ciphertext in memory ---- */

typedef struct memory {
    int fd;
    size_t size, from, have, out;
    char *in, *to;
    bool gathers; /* the handshake is over */
} memory;

static int read_memory(BIO *b, char *to, size_t most, size_t *n)
{
    memory *m = BIO_get_data(b);
    if (m->from == m->have) {
        ssize_t got = recv(m->fd, m->in, m->size, 0);
        if (got <= 0)
            return 0;
        m->from = 0;
        m->have = (size_t)got;
    }
    *n = most < m->have - m->from ? most : m->have - m->from;
    memcpy(to, m->in + m->from, *n);
    m->from += *n;
    return 1;
}

static void send_all(int fd, const char *p, size_t n)
{
    for (ssize_t k; n; p += k, n -= (size_t)k)
        if ((k = send(fd, p, n, 0)) <= 0)
            die("send");
}

static void flush(memory *m)
{
    send_all(m->fd, m->to, m->out);
    m->out = 0;
}

static int write_memory(BIO *b, const char *p, size_t n, size_t *done)
{
    memory *m = BIO_get_data(b);
    if (n > m->size - m->out)
        flush(m);
    memcpy(m->to + m->out, p, n);
    m->out += n;
    *done = n;
    if (!m->gathers)
        flush(m);
    return 1;
}

static long control(BIO *b, int what, long number, void *p)
{
    (void)b;
    (void)number;
    (void)p;
    return what == BIO_CTRL_FLUSH;
}

static void use_memory(SSL *s, memory *m)
{
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "memory");
    BIO_meth_set_read_ex(method, read_memory);
    BIO_meth_set_write_ex(method, write_memory);
    BIO_meth_set_ctrl(method, control);
    BIO *b = BIO_new(method);
    m->in = malloc(m->size);
    m->to = malloc(m->size);
    if (!b || !m->in || !m->to)
        die("memory");
    BIO_set_data(b, m);
    BIO_set_init(b, 1);
    SSL_set_bio(s, b, b);
}

/* ---- the two processes ---- */

static void connected(int *sends, int *receives)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int listens = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    *receives = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listens, (void *)&at, n) || listen(listens, 1) ||
        getsockname(listens, (void *)&at, &n) || connect(*receives, (void *)&at, n) ||
        (*sends = accept(listens, NULL, NULL)) < 0)
        die("loopback");
    setsockopt(*sends, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    close(listens);
}

static double seconds(int who)
{
    struct rusage u;
    getrusage(who, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static SSL *session(int fd, bool accepts, char **v, memory *m)
{
    SSL_CTX *c = SSL_CTX_new(TLS_method());
    if (!c || !SSL_CTX_set_ciphersuites(c, "TLS_AES_128_GCM_SHA256"))
        die("OpenSSL");
    if (accepts && (SSL_CTX_use_certificate_chain_file(c, v[1]) != 1 ||
                    SSL_CTX_use_PrivateKey_file(c, v[2], SSL_FILETYPE_PEM) != 1))
        die(v[1]);
    SSL *s = SSL_new(c);
    if (m->size)
        use_memory(s, m);
    else
        SSL_set_fd(s, fd);
    if ((accepts ? SSL_accept(s) : SSL_connect(s)) != 1)
        die("handshake");
    m->gathers = true;
    return s;
}

int main(int n, char **v)
{
    if (n < 5)
        die("usage: tls_bare CERT KEY GB plain|socket|memory [RECORDS]");
    size_t rows = (size_t)(atof(v[3]) * 1e9 / ROW);
    bool plain = !strcmp(v[4], "plain");
    char *row = aligned_alloc(4096, ROW);
    if (!row || !rows)
        die("rows");
    memset(row, 0, ROW);
    int sends, receives, pipe_of[2];
    connected(&sends, &receives);
    if (pipe(pipe_of))
        die("pipe");
    bool child = fork() == 0;
    int fd = child ? receives : sends;
    close(child ? sends : receives);
    memory m = {.fd = fd, .size = n > 5 ? (size_t)atol(v[5]) * WITH_FRAME : 0};
    SSL *s = plain ? NULL : session(fd, !child, v, &m);
    double spent = -seconds(RUSAGE_SELF), other = 0;
    for (size_t i = 0; i < rows; i++)
        if (!child && !s)
            send_all(fd, row, ROW);
        else
            for (size_t at = 0; at < ROW;) {
                int got = !s      ? (int)recv(fd, row + at, ROW - at, 0)
                          : child ? SSL_read(s, row + at, (int)(ROW - at))
                                  : SSL_write(s, row + at, RECORD);
                if (got <= 0)
                    die("transfer");
                at += (size_t)got;
            }
    if (!child)
        flush(&m);
    spent += seconds(RUSAGE_SELF);
    if (child)
        return write(pipe_of[1], &spent, sizeof spent) != sizeof spent;
    if (read(pipe_of[0], &other, sizeof other) != sizeof other)
        die("the receiver");
    wait(NULL);
    printf("%.4f %s\n", (spent + other) / ((double)rows * ROW / 1e9),
           s ? SSL_get_cipher(s) : "none");
}
