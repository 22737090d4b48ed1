/* Compiler processes: one for each worker that has a text to compile, started when the text is there.
 *
 * The broker holds one end of a pair of sockets for each worker and only looks whether something lies in it, as inetd does.
 * A compiler process that ends in order has been silent for long and is started again when needed; one that fails is the
 * last of its worker. */
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proxy/broker.h"
#include "proxy/spawn.h"

void broker_orders(const struct broker *broker, struct pollfd orders[SEATS])
{
    for (unsigned int at = 0; at < SEATS; at++) {
        const struct seat *seat = &broker->seats[at];
        bool waits = seat->id != 0 && seat->compiler == 0;
        orders[at] = (struct pollfd){.fd = waits ? seat->orders : -1, .events = POLLIN};
    }
}

static void end_orders(struct seat *seat)
{
    close(seat->orders); /* its worker reads the end, and interprets from now on */
    seat->orders = -1;
}

static void start(const struct broker *broker, struct seat *seat)
{
    struct page *page;
    int file = broker_page(broker, &page);
    pid_t process = -1;
    if (file >= 0) {
        int given[WORKER_DESCRIPTORS - WORKER_SOCKET];
        for (int at = 0; at < WORKER_DESCRIPTORS - WORKER_SOCKET; at++)
            given[at] = -1;
        given[0] = seat->orders;
        given[WORKER_PAGE - WORKER_SOCKET] = file;
        process = spawn(ROLE_COMPILER, given);
        munmap(page, sizeof *page);
        close(file);
    }
    if (process > 0)
        seat->compiler = process;
    else
        end_orders(seat);
}

void broker_compile(struct broker *broker, const struct pollfd orders[SEATS])
{
    pthread_mutex_lock(&broker->lock);
    for (unsigned int at = 0; at < SEATS; at++) {
        struct seat *seat = &broker->seats[at];
        if (orders[at].fd < 0 || orders[at].revents == 0 || seat->id == 0 || seat->orders != orders[at].fd)
            continue;
        if (orders[at].revents & POLLIN && !(orders[at].revents & POLLHUP))
            start(broker, seat);
        else
            end_orders(seat);
    }
    pthread_mutex_unlock(&broker->lock);
}

bool compiler_ended(struct broker *broker, pid_t process, int status)
{
    for (unsigned int at = 0; at < SEATS; at++) {
        struct seat *seat = &broker->seats[at];
        if (seat->id == 0 || seat->compiler != process)
            continue;
        seat->compiler = 0;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            fprintf(stderr, "gputax-proxy: the compiler process of tenant %llu failed\n", (unsigned long long)seat->id);
            end_orders(seat);
        }
        return true;
    }
    return false;
}
