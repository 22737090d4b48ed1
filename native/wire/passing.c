/* Reads and sends the fixed records of the handshake, with the descriptors that belong to them. */
#include "passing.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int) * PASSED_MOST)];
};

int64_t passing_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Takes the descriptors out of one message's control data; more than are wanted is against the format. */
static void take_descriptors(struct msghdr *message, int *passed, size_t wanted)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int descriptor;
            size_t place = 0;
            memcpy(&descriptor, CMSG_DATA(c) + i * sizeof(int), sizeof descriptor);
            while (place < wanted && passed[place] >= 0)
                place++;
            if (place < wanted)
                passed[place] = descriptor;
            else
                close(descriptor);
        }
    }
}

const char *passing_read(int socket, void *to, size_t bytes, int64_t deadline_ms, int *passed, size_t wanted)
{
    size_t done = 0;
    for (size_t i = 0; i < wanted; i++)
        passed[i] = -1;
    while (done < bytes) {
        union control control;
        struct iovec part = {(char *)to + done, bytes - done};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
        if (wanted > 0) { /* without room for control data the kernel drops what is sent */
            message.msg_control = control.bytes;
            message.msg_controllen = CMSG_SPACE(sizeof(int) * wanted);
        }
        ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (got > 0) {
            if (wanted > 0)
                take_descriptors(&message, passed, wanted);
            done += (size_t)got;
        } else if (got == 0 || errno == ECONNRESET) {
            return "it hung up";
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            int64_t left = deadline_ms - passing_now_ms();
            struct pollfd readable = {.fd = socket, .events = POLLIN};
            if (left <= 0)
                return "it said nothing in time";
            poll(&readable, 1, (int)left);
        } else if (errno != EINTR) {
            return strerror(errno);
        }
    }
    return NULL;
}

bool passing_send(int socket, const void *from, size_t bytes, const int *passed, size_t count)
{
    union control control = {.bytes = {0}};
    struct iovec part = {(void *)(uintptr_t)from, bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    int given[PASSED_MOST];
    size_t used = 0;
    for (size_t i = 0; i < count && used < PASSED_MOST; i++)
        if (passed[i] >= 0)
            given[used++] = passed[i];
    if (used > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * used);
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * used);
        memcpy(CMSG_DATA(c), given, sizeof(int) * used);
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)bytes;
}
