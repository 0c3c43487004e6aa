/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/address_scope.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_HOST = 256 };

typedef struct range {
    uint8_t first[16];
    int bits;
} range;

static bool is_in(const uint8_t *a, const range *r)
{
    int whole = r->bits / 8, rest = r->bits % 8;
    if (memcmp(a, r->first, (size_t)whole) != 0)
        return false;
    return rest == 0 || (a[whole] ^ r->first[whole]) >> (8 - rest) == 0;
}

static bool is_public_4(const uint8_t *a)
{
    static const range others[] = {
        {{0}, 8},         {{10}, 8},       {{100, 64}, 10},      {{127}, 8},
        {{169, 254}, 16}, {{172, 16}, 12}, {{192, 0, 0}, 24},    {{192, 0, 2}, 24},
        {{192, 168}, 16}, {{198, 18}, 15}, {{198, 51, 100}, 24}, {{203, 0, 113}, 24},
        {{224}, 3}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (is_in(a, &others[i]))
            return false;
    return true;
}

/* The IPv4 address that an IPv6 address stands for, or NULL. */
static const uint8_t *inner(const uint8_t *a)
{
    static const range mapped = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, 96},
                       compatible = {{0}, 96}, translated = {{0, 0x64, 0xff, 0x9b}, 96},
                       tunnelled = {{0x20, 0x02}, 16};
    if (is_in(a, &mapped) || is_in(a, &compatible) || is_in(a, &translated))
        return a + 12;
    return is_in(a, &tunnelled) ? a + 2 : NULL;
}

static bool is_public_6(const uint8_t *a)
{
    static const range unicast = {{0x20}, 3}, documents = {{0x20, 0x01, 0x0d, 0xb8}, 32};
    const uint8_t *v4 = inner(a);
    if (v4)
        return is_public_4(v4);
    return is_in(a, &unicast) && !is_in(a, &documents);
}

bool mr__address_is_public(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return is_public_4((const uint8_t *)&((const struct sockaddr_in *)a)->sin_addr);
    return a->sa_family == AF_INET6 &&
           is_public_6(((const struct sockaddr_in6 *)a)->sin6_addr.s6_addr);
}

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return *(const uint8_t *)&((const struct sockaddr_in *)a)->sin_addr == 127;
    return a->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)->sin6_addr);
}

bool mr__address_is_named(const struct sockaddr *a, const char *host, size_t n)
{
    char text[MOST_HOST];
    struct in6_addr v;
    if (n >= 2 && host[0] == '[' && host[n - 1] == ']') {
        host++;
        n -= 2;
    }
    if (n == 9 && strncmp(host, "localhost", 9) == 0)
        return is_loopback(a);
    if (n >= sizeof text)
        return false;
    memcpy(text, host, n);
    text[n] = '\0';
    if (a->sa_family == AF_INET)
        return inet_pton(AF_INET, text, &v) == 1 &&
               memcmp(&v, &((const struct sockaddr_in *)a)->sin_addr, 4) == 0;
    return a->sa_family == AF_INET6 && inet_pton(AF_INET6, text, &v) == 1 &&
           memcmp(&v, &((const struct sockaddr_in6 *)a)->sin6_addr, 16) == 0;
}

bool mr__proxy_is_set(void)
{
    static const char *const names[] = {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy",
                                        "ALL_PROXY"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *v = getenv(names[i]);
        if (v && *v)
            return true;
    }
    return false;
}
