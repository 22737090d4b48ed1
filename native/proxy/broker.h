/* The broker: it accepts tenants, knows who they are, gives each a worker process, and ends it. It never reads a tenant's
 * messages and never loads the backend. */
#ifndef GPUTAX_PROXY_BROKER_H
#define GPUTAX_PROXY_BROKER_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "proxy/identity.h"
#include "proxy/page.h"

enum {
    ENDED_KEPT = 64,
    CONNECTIONS_DEFAULT = SEATS / 2, /* of one identity */
    RESERVED_SEATS = SEATS / 4,      /* the last ones: for identities that have none yet */
    ENDING_MAX = 64,
    PLACES_MOST = 64,
};

/* What is known of a tenant, also after its end. */
struct past {
    uint64_t id;
    uint64_t identity;
    struct wire_peer peer;
    pid_t worker;
    uint64_t memory_limit_bytes;
    uint64_t time_share;
    char ended[ENDING_MAX]; /* "" while it lives */
    struct record record;   /* a copy */
};

/* One connected tenant and its worker. */
struct seat {
    uint64_t id; /* 0: free */
    struct wire_peer peer;
    struct identity *identity;
    pid_t worker;
    int process;    /* a pidfd of the tenant, or -1 */
    int orders;     /* the other end of what the worker writes texts to; -1: none */
    pid_t compiler; /* the process that has it now, 0: nobody */
    struct page *page;
    uint64_t begun_ns, gone_ns;
    const char *ending; /* why the broker has killed its worker; NULL: it has not */
};

struct policy {
    struct limits limits;
    uint64_t connections; /* of one identity */
    uint64_t idle_s;      /* 0: for ever; a tenant without calls for so long is ended */
    uint64_t call_s;      /* the same of one call that does not end */
    uid_t first_user;     /* of the workers, one for each seat; 0: the broker's own for all */
    bool users_asked;     /* by the operator: else they are chosen, where it is possible, for the software device */
    uint64_t unconfined;  /* measures of confine.h that are switched off */
    bool by_process;
    bool always_clear;
    enum spin_policy spin;
    uint32_t shares[PLACES_MOST]; /* of the places, in hundredths of a percent of the device */
    unsigned int share_count;     /* 0: none has a share of its own */
};

struct broker {
    const char *backend;
    struct finding finding; /* of the backend */
    struct policy policy;
    unsigned int places; /* each has its share of the seats, so that none can keep the others out; 0: no places */
    bool clears_memory;  /* the workers do, before it is handed out */
    struct gputax_shared_device *device;
    int device_file;
    int life[2]; /* the pipe by which workers see that the broker has gone */
    pthread_mutex_t
        lock; /* over all below; held only for moments. Workers are reaped under it, so a pid here is alive */
    pthread_cond_t seated; /* a seat was taken: the governor counts again */
    struct seat seats[SEATS];
    unsigned int seats_used;
    uint64_t tenants_seen, identities_seen;
    struct identity *identities;
    struct past ended[ENDED_KEPT]; /* a ring; ended_count counts on */
    uint64_t ended_count;
    struct record totals; /* sums over ended tenants */
    _Atomic bool stopping;
    _Atomic uint32_t spin_us, active_tenants, foreign_milli, usable_milli, quota_milli;
};

/* Makes what workers share, and asks a first worker what the backend is. False with the reason; *code is the exit code. */
bool broker_begin(struct broker *broker, char *why, size_t why_size, int *code);

/* Takes a connection: a worker of its own does the handshake and serves it. */
void broker_take(struct broker *broker, int socket, const struct wire_peer *peer);

/* Where workers write texts that want a compiler, one entry for each seat, and the start of a compiler process for those
 * that have one. The broker itself reads none of it. */
void broker_orders(const struct broker *broker, struct pollfd orders[SEATS]);
void broker_compile(struct broker *broker, const struct pollfd orders[SEATS]);
/* A page with the settings of a new process; its descriptor, or -1. */
int broker_page(const struct broker *broker, struct page **page);
/* Takes notice of a compiler process that has ended; false: it is none. The caller holds the lock. */
bool compiler_ended(struct broker *broker, pid_t process, int status);

/* Takes notice of workers that have ended. */
void broker_reap(struct broker *broker);

/* Ends all workers and waits for them: in order, and by force after this long. */
void broker_stop(struct broker *broker, unsigned int milliseconds);

/* Kills a tenant's worker. False if there is no such tenant. */
bool broker_evict(struct broker *broker, uint64_t tenant);

/* Kills a seat's worker, and keeps the first reason. The caller holds the lock. */
void seat_end(struct seat *seat, const char *why);

/* Decides again how long everyone may spin, and ends workers that are over their time; called every few ms by a thread of
 * its own. */
void broker_govern(struct broker *broker);

/* Copies what is known of a living tenant. The caller holds the lock. */
void broker_copy(const struct broker *broker, const struct seat *seat, struct past *to);
void record_add(struct record *sums, const struct record *record);
/* What a tenant of this place may have; place 0 is the broker's own socket. */
struct limits broker_limits(const struct broker *broker, unsigned int place);

/* A status socket: its threads never make a tenant wait longer than it takes to copy the counters. That of a place shows
 * the living tenants of the place alone, one reader after the other, so that its readers delay no others. */
bool status_begin(struct broker *broker, int listener, unsigned int place);

/* Whether a proxy answers at this status socket, for a probe: 0, or 1 with the reason on stderr. */
int status_check(const char *path);

struct places {
    const char *socket; /* the broker's own; the places are beside it */
    unsigned int count;
    int listeners[PLACES_MOST], status[PLACES_MOST];
};

/* Makes the folders, listens in each. False with the reason; what was begun is then ended with places_end. */
bool places_begin(struct places *places, struct broker *broker, const char *socket, unsigned int count, char *why,
                  size_t why_size);
void places_end(struct places *places);

#endif
