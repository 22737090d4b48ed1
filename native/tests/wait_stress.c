/* One thread sleeps, the other wakes it after delays that sweep over every order of their steps: a wake-up that is lost
 * shows, because nobody wakes twice. `wait_stress [SECONDS]` */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#include "wire/wait.h"

enum { LOST_AFTER_S = 5, DELAY_MOST = 300 };

static _Atomic uint64_t counter, answered;
static _Atomic uint32_t bells[2], limit_us;

static void *sleeper(void *argument)
{
    struct waiter *waiter = argument;
    for (uint64_t round = 1;; round++) {
        struct wait_for want = {WAIT_MESSAGE, &counter, round - 1, 1};
        if (wait_until(waiter, &want) != WIRE_OK)
            return NULL;
        atomic_store(&answered, round);
    }
}

static bool answers(uint64_t round)
{
    time_t start = time(NULL);
    for (uint64_t i = 1; atomic_load(&answered) != round; i++) {
        if (i % 1000 != 0)
            continue;
        sched_yield(); /* there may be but one core */
        if (time(NULL) - start > LOST_AFTER_S)
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    static struct waiter sleeps = {
        .mine = &bells[0], .peers = &bells[1], .limit_us = &limit_us, .lifeline_ms = 3600 * 1000};
    static struct waiter wakes = {
        .mine = &bells[1], .peers = &bells[0], .limit_us = &limit_us, .lifeline_ms = 3600 * 1000};
    long seconds = argc > 1 ? strtol(argv[1], NULL, 10) : 3;
    pthread_t thread;
    int line[2];
    uint64_t random = 1;
    uint64_t round = 1;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, line) != 0)
        return 1;
    sleeps.lifeline = line[0];
    wakes.lifeline = line[1];
    if (pthread_create(&thread, NULL, sleeper, &sleeps) != 0)
        return 1;
    for (time_t end = time(NULL) + seconds; time(NULL) < end; round++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        for (volatile uint64_t delay = (random >> 40) % DELAY_MOST; delay > 0; delay--) {
        }
        atomic_store(&counter, round);
        wait_wake(&wakes, WAIT_MESSAGE);
        if (!answers(round)) {
            fprintf(stderr, "wait_stress: wake-up %llu was lost\n", (unsigned long long)round);
            return 1;
        }
        atomic_store(&limit_us, random % 64 == 0 ? 1 : 0);
    }
    wait_shut(&sleeps);
    pthread_join(thread, NULL);
    printf("{\"rounds\": %llu, \"sleeps\": %llu, \"wakes\": %llu}\n", (unsigned long long)round - 1,
           (unsigned long long)sleeps.sleeps, (unsigned long long)wakes.wakes);
    return 0;
}
