/* Physical limit for a ring over loopback TCP on one core: one thread, level-triggered epoll, one
 * read() and one write() per message. Each of N ranks sends K blocks of B bytes to the next and
 * receives K from the one before.
 *
 * Without --headers a rank forwards what it read, step by step. With chunk > B one read may take
 * several blocks at once: the pipelined (cut-through) ring.
 *
 * With --headers each step is two dependent exchanges, as in NCCL's ring in lockstep: the 4-byte
 * size goes to next while prev's 4 bytes are read, and only then the block. That is two messages a
 * block.
 *
 * usage: ring_limit N K B [chunk] [--headers]
 * Prints one line of name=value. blocks = N*K, messages = blocks, or twice that with --headers;
 * bytes are all bytes carried, sizes included. Setting up the connections is not part of seconds
 * and cpu_s (user and system). */
#define _GNU_SOURCE
#include "loopback.h"

#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/epoll.h>

enum { HEADER_SIZE = 4, EVENTS = 1024, WRITE_PATIENCE_MS = 2000, DESCRIPTORS_SPARE = 16 };

struct rank {
    int in, out;                /* from prev, to next */
    long got;                   /* bytes of the whole run; --headers: of the message under way */
    bool expects_header;        /* --headers: the size comes next, else the block */
    long steps;                 /* --headers: blocks received */
    unsigned char size[HEADER_SIZE];
};

struct ring {
    int n;
    long blocks, block_size, chunk;
    bool headers;
    struct rank *ranks;
    unsigned char *buffer;      /* one for all: a rank's data never outlives its turn */
    unsigned char header[HEADER_SIZE];
    long reads;
};

static void nonblocking(int s) {
    int flags = fcntl(s, F_GETFL);
    if (flags < 0 || fcntl(s, F_SETFL, flags | O_NONBLOCK)) die("fcntl");
}

static void connect_ring(struct ring *ring) {
    uint32_t prefix = draw_prefix();
    for (int i = 0; i < ring->n; i++) {
        struct rank *self = &ring->ranks[i], *next = &ring->ranks[(i + 1) % ring->n];
        struct sockaddr_in a = address_of(prefix, i);
        int listener = listen_on(&a, 2);
        self->out = connect_from(a, &a);
        next->in = accept_from(listener);
        close(listener);
        nonblocking(self->out);
        nonblocking(next->in);
    }
}

/* One write(), as a rule. The thread that waits here is the one that would drain the ring, so a
 * buffer which stays full (no acknowledgement under way either) is the end. */
static void send_all(int s, const unsigned char *data, long size) {
    while (size) {
        ssize_t w = write(s, data, size);
        if (w > 0) {
            data += w;
            size -= w;
            continue;
        }
        struct pollfd wait = {.fd = s, .events = POLLOUT};
        if (w < 0 && errno != EAGAIN) die("write");
        if (poll(&wait, 1, WRITE_PATIENCE_MS) != 1) {
            fprintf(stderr, "socket buffers cannot hold what is under way: choose a smaller B\n");
            exit(1);
        }
    }
}

/* At most `limit` bytes, or 0 if there is nothing to read after all. */
static long receive(struct ring *ring, struct rank *self, unsigned char *into, long limit) {
    ssize_t r = read(self->in, into, limit);
    if (r < 0 && errno == EAGAIN) return 0;
    if (r < 0) die("read");
    if (r == 0) {
        fprintf(stderr, "a rank's connection was closed early\n");
        exit(1);
    }
    ring->reads++;
    return r;
}

/* What can be read is forwarded, except the last block. True when this rank has received all. */
static bool forward(struct ring *ring, struct rank *self) {
    long total = ring->blocks * ring->block_size, to_forward = total - ring->block_size - self->got;
    long limit = total - self->got < ring->chunk ? total - self->got : ring->chunk;
    long r = receive(ring, self, ring->buffer, limit);
    self->got += r;
    if (to_forward > 0) send_all(self->out, ring->buffer, r < to_forward ? r : to_forward);
    return self->got == total;
}

/* One read of a size or a block. Prev's size complete (ours was sent before): our block goes.
 * Prev's block complete: the next step begins with our size. True when this rank has received
 * all. */
static bool exchange(struct ring *ring, struct rank *self) {
    long size = self->expects_header ? HEADER_SIZE : ring->block_size;
    unsigned char *into = self->expects_header ? self->size : ring->buffer;
    self->got += receive(ring, self, into + self->got, size - self->got);
    if (self->got < size) return false;
    self->got = 0;
    if (self->expects_header) {
        if (memcmp(self->size, ring->header, HEADER_SIZE)) {
            fprintf(stderr, "a size differs: the exchanges are out of step\n");
            exit(1);
        }
        self->expects_header = false;
        send_all(self->out, ring->buffer, ring->block_size);
        return false;
    }
    self->expects_header = true;
    if (++self->steps == ring->blocks) return true;
    send_all(self->out, ring->header, HEADER_SIZE);
    return false;
}

static void run(struct ring *ring, int epoll) {
    struct epoll_event events[EVENTS];
    const unsigned char *first = ring->headers ? ring->header : ring->buffer;
    for (int i = 0; i < ring->n; i++)
        send_all(ring->ranks[i].out, first, ring->headers ? HEADER_SIZE : ring->block_size);
    for (int left = ring->n; left;) {
        int ready = epoll_wait(epoll, events, EVENTS, -1);
        if (ready < 0) die("epoll_wait");
        for (int j = 0; j < ready; j++) {
            struct rank *self = events[j].data.ptr;
            if (!(ring->headers ? exchange(ring, self) : forward(ring, self))) continue;
            epoll_ctl(epoll, EPOLL_CTL_DEL, self->in, NULL);
            left--;
        }
    }
}

static int watch(struct ring *ring) {
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    if (epoll < 0) die("epoll_create1");
    for (int i = 0; i < ring->n; i++) {
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = &ring->ranks[i]};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, ring->ranks[i].in, &e)) die("epoll_ctl");
    }
    return epoll;
}

static struct ring parse(int argc, char **argv) {
    char *numbers[4];
    int count = 0;
    struct ring ring = {0};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--headers")) ring.headers = true;
        else if (argv[i][0] != '-' && count < 4) numbers[count++] = argv[i];
        else count = 5;
    }
    if (count < 3 || count > 4) {
        fprintf(stderr, "usage: ring_limit N K B [chunk] [--headers]\n");
        exit(2);
    }
    ring.n = (int)whole_number("N", numbers[0], 2, 254L * PORTS_PER_ADDRESS);
    ring.blocks = whole_number("K", numbers[1], 1, 1L << 40);
    ring.block_size = whole_number("B", numbers[2], 1, 1L << 20);
    ring.chunk = ring.block_size;
    if (count == 4) ring.chunk = whole_number("chunk", numbers[3], ring.block_size, 1L << 24);
    if (ring.headers && ring.chunk != ring.block_size) {
        fprintf(stderr, "--headers is the ring in lockstep: chunk must be B\n");
        exit(2);
    }
    return ring;
}

int main(int argc, char **argv) {
    struct ring ring = parse(argc, argv);
    need_descriptors(2L * ring.n + DESCRIPTORS_SPARE);
    uint32_t size = (uint32_t)ring.block_size;
    memcpy(ring.header, &size, HEADER_SIZE);
    ring.ranks = calloc(ring.n, sizeof *ring.ranks);
    ring.buffer = malloc(ring.chunk);
    if (!ring.ranks || !ring.buffer) die("memory");
    memset(ring.buffer, 7, ring.chunk);
    for (int i = 0; i < ring.n; i++) ring.ranks[i].expects_header = ring.headers;
    connect_ring(&ring);
    int epoll = watch(&ring);

    double wall = wall_seconds(), cpu = cpu_seconds();
    run(&ring, epoll);
    wall = wall_seconds() - wall;
    cpu = cpu_seconds() - cpu;

    double blocks = (double)ring.n * ring.blocks, messages = ring.headers ? 2 * blocks : blocks;
    double bytes = blocks * (ring.block_size + (ring.headers ? HEADER_SIZE : 0));
    printf("N=%d K=%ld B=%ld chunk=%ld headers=%d seconds=%.3f cpu_s=%.3f blocks_per_s=%.0f "
           "messages_per_s=%.0f bytes_per_s=%.0f reads=%ld us_per_read=%.2f\n",
           ring.n, ring.blocks, ring.block_size, ring.chunk, ring.headers, wall, cpu, blocks / wall,
           messages / wall, bytes / wall, ring.reads, wall / ring.reads * 1e6);
    return 0;
}
