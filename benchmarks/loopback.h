/* What the C programs of this folder share: loopback addresses that no earlier run has used up,
 * connections that leave nothing behind, and clocks.
 *
 * Every run draws 127.A.B.0/24 at random. A fixed address would meet the TIME_WAIT ports of the
 * run before and end in EADDRINUSE; all sockets therefore also close with SO_LINGER 0, which
 * resets instead of waiting. Clients bind their source address with IP_BIND_ADDRESS_NO_PORT:
 * without it they all come from 127.0.0.1, and the kernel's port search walks long chains. */
#ifndef LOOPBACK_H
#define LOOPBACK_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Of about 28,000 ephemeral ones, so that the search for a free one stays short. */
enum { PORTS_PER_ADDRESS = 4000 };

static void die(const char *what) {
    perror(what);
    exit(1);
}

static double wall_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

/* User and system time of this process. */
static double cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

/* A whole number from `low` to `high`, or the end of the program with a sentence that says what
 * was wrong. */
static long whole_number(const char *name, const char *text, long low, long high) {
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < low || value > high) {
        fprintf(stderr, "%s must be a whole number from %ld to %ld, not '%s'\n", name, low, high,
                text);
        exit(2);
    }
    return value;
}

/* Raises the soft limit on open files to what `needed` descriptors take, or ends the program. */
static void need_descriptors(long needed) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur >= (rlim_t)needed) return;
    if (limit.rlim_max < (rlim_t)needed) {
        fprintf(stderr, "%ld descriptors needed, %llu allowed (ulimit -Hn): choose a smaller N\n",
                needed, (unsigned long long)limit.rlim_max);
        exit(2);
    }
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit)) die("setrlimit");
}

/* The first address of a random 127.A.B.0/24, in host order; A is 1 to 254, so that 127.0.0.1 is
 * left alone. */
static uint32_t draw_prefix(void) {
    unsigned char r[2];
    if (getrandom(r, sizeof r, 0) != (ssize_t)sizeof r) die("getrandom");
    return 0x7f000001u + ((1u + r[0] % 254u) << 16) + ((uint32_t)r[1] << 8);
}

/* The address of rank `i` in the run's prefix, port 0: the kernel chooses. */
static struct sockaddr_in address_of(uint32_t prefix, int i) {
    struct sockaddr_in a = {.sin_family = AF_INET};
    a.sin_addr.s_addr = htonl(prefix + (uint32_t)(i / PORTS_PER_ADDRESS));
    return a;
}

static int tcp_socket(void) {
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0) die("socket");
    return s;
}

/* Small messages go out at once, and closing leaves no TIME_WAIT. */
static void prepare(int s) {
    int one = 1;
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    if (setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one)) die("TCP_NODELAY");
    if (setsockopt(s, SOL_SOCKET, SO_LINGER, &reset, sizeof reset)) die("SO_LINGER");
}

/* A listener on `*a`, which gets the port. */
static int listen_on(struct sockaddr_in *a, int backlog) {
    socklen_t size = sizeof *a;
    int s = tcp_socket();
    if (bind(s, (struct sockaddr *)a, size)) die("bind (listener)");
    if (listen(s, backlog)) die("listen");
    if (getsockname(s, (struct sockaddr *)a, &size)) die("getsockname");
    return s;
}

/* A connection from `source`'s address, any port, to `target`. */
static int connect_from(struct sockaddr_in source, const struct sockaddr_in *target) {
    int one = 1, s = tcp_socket();
    source.sin_port = 0;
    if (setsockopt(s, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one))
        die("IP_BIND_ADDRESS_NO_PORT");
    if (bind(s, (struct sockaddr *)&source, sizeof source)) die("bind (source)");
    if (connect(s, (const struct sockaddr *)target, sizeof *target)) die("connect");
    prepare(s);
    return s;
}

/* The next connection that `listener` has. */
static int accept_from(int listener) {
    int s = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (s < 0) die("accept");
    prepare(s);
    return s;
}

#endif
