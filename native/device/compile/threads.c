/* Threads that live as long as the process and help with launches; a launch that finds them busy runs alone. */
#include <pthread.h>
#include <sched.h>

#include "device/compile/run.h"

enum { THREADS_MAX = 63 };

static pthread_mutex_t owner = PTHREAD_MUTEX_INITIALIZER; /* held by the launch that has the helpers */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;
static struct job *current;
static unsigned wanted, running, alive;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void *help(void *nothing)
{
    (void)nothing;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!wanted)
            pthread_cond_wait(&wake, &lock);
        wanted--;
        struct job *job = current;
        pthread_mutex_unlock(&lock);
        run_blocks(job);
        pthread_mutex_lock(&lock);
        if (--running == 0)
            pthread_cond_signal(&done);
    }
    return NULL;
}

/* Helpers do not live on in a child process. */
static void after_fork(void)
{
    pthread_mutex_init(&owner, NULL);
    pthread_mutex_init(&lock, NULL);
    pthread_cond_init(&wake, NULL);
    pthread_cond_init(&done, NULL);
    current = NULL;
    wanted = running = alive = 0;
}

static void prepare(void)
{
    pthread_atfork(NULL, NULL, after_fork);
}

static unsigned cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

static void grow(unsigned count)
{
    while (alive < count) {
        pthread_t thread;
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        bool made = pthread_create(&thread, &attributes, help, NULL) == 0;
        pthread_attr_destroy(&attributes);
        if (!made)
            return;
        alive++;
    }
}

void threads_run(struct job *job, unsigned most)
{
    pthread_once(&once, prepare);
    if (!run_reserve(job)) {
        atomic_store(&job->fault, CUDA_ERROR_OUT_OF_MEMORY);
        return;
    }
    unsigned have = cores();
    unsigned helpers = (most < have ? most : have) - 1;
    helpers = helpers < THREADS_MAX ? helpers : THREADS_MAX;
    if (helpers == 0 || pthread_mutex_trylock(&owner) != 0) {
        run_blocks(job);
        return;
    }
    pthread_mutex_lock(&lock);
    grow(helpers);
    helpers = helpers < alive ? helpers : alive;
    current = job;
    wanted = running = helpers;
    pthread_cond_broadcast(&wake);
    pthread_mutex_unlock(&lock);
    run_blocks(job);
    pthread_mutex_lock(&lock);
    running -= wanted; /* those who have not begun need not */
    wanted = 0;
    while (running)
        pthread_cond_wait(&done, &lock);
    current = NULL;
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&owner);
}
