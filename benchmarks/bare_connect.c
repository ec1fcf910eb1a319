/* The floor under "CPU per formed rank": what the kernel charges for one rank's sockets, and
 * nothing else.
 *
 * For each of N ranks, one after the other in one process: a listener (socket, bind, listen,
 * getsockname), a connection to it (socket, bind to a source address, connect), and its other end
 * (accept), TCP_NODELAY on both. All three descriptors stay open until the N-th rank has its own,
 * as they do in a formation, so N is at most a third of the descriptor limit. No message is sent,
 * no event loop runs.
 *
 * usage: bare_connect N */
#define _GNU_SOURCE
#include "loopback.h"

enum { BACKLOG = 16384, DESCRIPTORS_PER_RANK = 3, DESCRIPTORS_SPARE = 16 };

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: bare_connect N\n");
        return 2;
    }
    int n = (int)whole_number("N", argv[1], 1, 254L * PORTS_PER_ADDRESS);
    need_descriptors((long)n * DESCRIPTORS_PER_RANK + DESCRIPTORS_SPARE);
    uint32_t prefix = draw_prefix();

    double wall = wall_seconds(), cpu = cpu_seconds();
    for (int i = 0; i < n; i++) {
        struct sockaddr_in a = address_of(prefix, i);
        int listener = listen_on(&a, BACKLOG);
        connect_from(a, &a);
        accept_from(listener);
    }
    wall = wall_seconds() - wall;
    cpu = cpu_seconds() - cpu;
    printf("N=%d seconds=%.3f cpu_s=%.3f wall_us_per_rank=%.2f cpu_us_per_rank=%.2f\n", n, wall,
           cpu, wall / n * 1e6, cpu / n * 1e6);
    return 0;
}
