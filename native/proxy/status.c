/* The status socket: one JSON document per connection, or Prometheus text for those who speak HTTP; and the operator's
 * orders. Who is not the operator sees its own tenants only. */
#include <errno.h>
#include <poll.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "calls/json.h"
#include "proxy/broker.h"
#include "proxy/clock.h"
#include "proxy/confine.h"

enum {
    REQUEST_MS =
        1000, /* a reader that wants HTTP has said so by then, also on a busy node; who says nothing wants JSON */
    READER_MS = 1000, /* a reader that takes nothing for so long is dropped */
    KEPT_OPEN_MS = 2,
    READERS_MOST = 32,  /* at once, each in a thread of its own; more of them wait to be accepted */
    STRANGERS_MOST = 8, /* of these, readers that are not the operator; more of them are sent away */
    CHECK_S = 5
};

/* Whose tenants a reader may see. */
struct reader {
    struct broker *broker;
    int socket;
    unsigned int place; /* whose socket it came to; 0: the broker's own */
    bool trusted;       /* the operator */
    uint64_t identity;  /* the only one that it may see, 0 for none */
};

/* A copy of all that a reader may see, so that nobody waits while it is written. */
struct view {
    struct past *tenants; /* the living, then those that have ended */
    size_t living, count;
    struct record totals;
    uint64_t ended_count, memory_bytes;
};

static void add_calls(struct json *json, const _Atomic uint64_t *calls)
{
    const char *comma = "";
    json_add(json, "{");
    for (size_t call = 0; call < CALL_COUNT; call++) {
        if (calls[call] == 0)
            continue;
        json_add(json, "%s\"%s\": %llu", comma, call_names[call], (unsigned long long)calls[call]);
        comma = ", ";
    }
    json_add(json, "}");
}

static void add_counters(struct json *json, const struct record *record)
{
    json_add(
        json,
        "\"errors\": %llu, \"refused_messages\": %llu, \"bytes_in\": %llu, \"bytes_out\": %llu, "
        "\"cleared_bytes\": %llu, "
        "\"cleared_s\": %.6f, \"throttled_s\": %.6f, \"posted_calls\": %llu, \"replayed_steps\": %llu, \"calls\": ",
        (unsigned long long)record->errors, (unsigned long long)record->refused, (unsigned long long)record->bytes_in,
        (unsigned long long)record->bytes_out, (unsigned long long)record->cleared_bytes,
        (double)record->cleared_ns / 1e9, (double)record->throttled_ns / 1e9, (unsigned long long)record->posted,
        (unsigned long long)record->replayed);
    add_calls(json, record->calls);
}

static const char *transport_name(uint64_t number)
{
    uint64_t known = 0;
    while (wire_transports[known] != NULL)
        known++;
    return number >= 1 && number <= known ? wire_transports[number - 1] : "";
}

static void add_tenant(struct json *json, const struct past *past)
{
    json_add(json, "{\"id\": %llu, \"identity\": %llu, \"pid\": %ld, \"uid\": %lu, \"worker\": %ld, \"transport\": ",
             (unsigned long long)past->id, (unsigned long long)past->identity, (long)past->peer.pid,
             (unsigned long)past->peer.uid, (long)past->worker);
    json_string(json, transport_name(past->record.transport));
    if (past->peer.place != 0)
        json_add(json, ", \"place\": %u", past->peer.place);
    if (past->peer.domain != 0) {
        json_add(json, ", \"domain\": %u, \"pod\": ", past->peer.domain);
        json_string(json, past->peer.pod);
    }
    json_add(json, ", \"memory_bytes\": %llu, \"memory_limit_bytes\": %llu, ",
             (unsigned long long)past->record.memory_bytes, (unsigned long long)past->memory_limit_bytes);
    if (past->time_share != 0)
        json_add(json, "\"time_percent\": %.2f, ", (double)past->time_share / 100);
    json_add(json, "\"confinement\": ");
    confine_list(json, past->record.confinement); /* what its worker says that it has given up */
    json_add(json, ", ");
    if (past->ended[0] != 0) {
        json_add(json, "\"ended\": ");
        json_string(json, past->ended);
        json_add(json, ", ");
    }
    add_counters(json, &past->record);
    json_add(json, "}");
}

/* A text that a worker wrote: ended somewhere, printable. */
static void add_foreign_text(struct json *json, const char *text)
{
    char copy[SHARED_TEXT_BYTES];
    memcpy(copy, text, sizeof copy);
    copy[sizeof copy - 1] = 0;
    for (char *at = copy; *at != 0; at++)
        if (*at < ' ' || *at == 127)
            *at = '?';
    json_string(json, copy);
}

/* What the software device says of its compiler, summed over all workers; other backends say nothing. */
static void add_soft_report(struct json *json, const struct gputax_shared_device *device)
{
#define COUNT(what, name) #name,
    static const char *const names[] = {SOFTWARE_COUNTS(COUNT)};
#undef COUNT
    if (device->attached == 0)
        return;
    json_add(json, ", \"software\": ");
    for (int at = 0; at < SOFTWARE_COUNT; at++)
        json_add(json, "%s\"%s\": %llu", at == 0 ? "{" : ", ", names[at], (unsigned long long)device->counts[at]);
    json_add(json, ", \"refusal\": ");
    add_foreign_text(json, device->refusal);
    json_add(json, ", \"warning\": ");
    add_foreign_text(json, device->warning);
    json_add(json, "}");
}

/* --- what a reader sees --- */

/* At a place the tenants that came through it, whoever reads. */
static bool may_see(const struct reader *reader, uint64_t identity, const struct wire_peer *peer)
{
    if (reader->place != 0)
        return peer->place == reader->place;
    return reader->trusted || reader->identity == identity;
}

static bool take_view(const struct reader *reader, struct view *view)
{
    struct broker *broker = reader->broker;
    *view = (struct view){.tenants = calloc(SEATS + ENDED_KEPT, sizeof *view->tenants)};
    if (view->tenants == NULL)
        return false;
    pthread_mutex_lock(&broker->lock);
    if (reader->trusted)
        memcpy(&view->totals, &broker->totals, sizeof view->totals);
    for (unsigned int at = 0; at < SEATS; at++) {
        const struct seat *seat = &broker->seats[at];
        if (seat->id == 0 || !may_see(reader, seat->identity->number, &seat->peer))
            continue;
        struct past *past = &view->tenants[view->count];
        broker_copy(broker, seat, past);
        record_add(&view->totals, &past->record);
        view->memory_bytes += past->record.memory_bytes;
        view->count += past->record.state != TENANT_GREETS; /* else it is in the handshake */
    }
    view->living = view->count;
    /* At a place they may be those of a container that had it before. */
    view->ended_count = reader->place == 0 ? broker->ended_count : 0;
    for (uint64_t at = view->ended_count > ENDED_KEPT ? view->ended_count - ENDED_KEPT : 0; at < view->ended_count;
         at++) {
        const struct past *past = &broker->ended[at % ENDED_KEPT];
        if (may_see(reader, past->identity, &past->peer))
            view->tenants[view->count++] = *past;
    }
    pthread_mutex_unlock(&broker->lock);
    return true;
}

static int by_id(const void *one, const void *other)
{
    const struct past *a = one, *b = other;
    return a->id < b->id ? 1 : a->id > b->id ? -1 : 0;
}

static void add_tenants(struct json *json, const struct past *tenants, size_t count)
{
    for (size_t at = 0; at < count; at++) {
        json_add(json, at == 0 ? "" : ", ");
        add_tenant(json, &tenants[at]);
    }
}

/* What says something about others: how many there are, and how busy the node is. */
static void add_node(struct json *json, const struct broker *broker)
{
    uint32_t foreign = broker->foreign_milli < broker->usable_milli ? broker->foreign_milli : broker->usable_milli;
    json_add(json, "\"active_tenants\": %u, \"cores_free\": %.3f, \"places\": %u, ", broker->active_tenants,
             (broker->usable_milli - foreign) / 1000.0, broker->places);
}

static void write_json(struct json *json, const struct broker *broker, struct view *view, bool node)
{
    json_add(json, "{\"pid\": %ld, \"backend\": ", (long)getpid());
    json_string(json, broker->backend);
    json_add(json, ", \"device\": ");
    json_string(json, broker->finding.device);
    add_soft_report(json, broker->device);
    json_add(json, ", \"transports\": [");
    for (const char *const *name = wire_transports; *name != NULL; name++) {
        json_add(json, name == wire_transports ? "" : ", ");
        json_string(json, *name);
    }
    json_add(json, "], \"confinement\": ");
    confine_list(json, broker->finding.confinement); /* of a worker on this machine */
    json_add(json, ", \"wait_policy\": \"%s\", \"spin_us\": %u, ", spin_policy_name(broker->policy.spin),
             broker->spin_us);
    if (node)
        add_node(json, broker);
    json_add(json, "\"clears_memory\": \"%s\", \"tenants\": [",
             broker->clears_memory ? "the proxy, before it is handed out" : "the backend, when it is freed");
    qsort(view->tenants, view->living, sizeof *view->tenants, by_id); /* the last that came is the first */
    add_tenants(json, view->tenants, view->living);
    json_add(json, "], \"ended_tenants\": [");
    add_tenants(json, view->tenants + view->living, view->count - view->living);
    json_add(json, "], \"totals\": {\"tenants\": %llu, \"ended\": %llu, \"memory_bytes\": %llu, ",
             (unsigned long long)view->living, (unsigned long long)view->ended_count,
             (unsigned long long)view->memory_bytes);
    add_counters(json, &view->totals);
    json_add(json, "}}\n");
}

/* One metric of all living tenants. */
static void add_metric(struct json *json, const struct view *view, const char *name, const char *type, size_t offset)
{
    json_add(json, "# TYPE gputax_proxy_%s %s\n", name, type);
    for (size_t at = 0; at < view->living; at++) {
        const struct past *past = &view->tenants[at];
        uint64_t value = *(const uint64_t *)(const void *)((const char *)past + offset);
        json_add(json, "gputax_proxy_%s{tenant=\"%llu\",pid=\"%ld\"} %llu\n", name, (unsigned long long)past->id,
                 (long)past->peer.pid, (unsigned long long)value);
    }
}

static void write_metrics(struct json *json, const struct broker *broker, const struct view *view)
{
    json_add(json, "# TYPE gputax_proxy_info gauge\ngputax_proxy_info{device=");
    json_string(json, broker->finding.device);
    json_add(json, ",backend=");
    json_string(json, broker->backend);
    json_add(json, ",wait_policy=\"%s\"} 1\n", spin_policy_name(broker->policy.spin));
    json_add(json, "# TYPE gputax_proxy_tenants_ended_total counter\ngputax_proxy_tenants_ended_total %llu\n",
             (unsigned long long)view->ended_count);
    json_add(json, "# TYPE gputax_proxy_active_tenants gauge\ngputax_proxy_active_tenants %u\n",
             broker->active_tenants);
    add_metric(json, view, "tenant_memory_bytes", "gauge", offsetof(struct past, record.memory_bytes));
    add_metric(json, view, "tenant_memory_limit_bytes", "gauge", offsetof(struct past, memory_limit_bytes));
    add_metric(json, view, "tenant_errors_total", "counter", offsetof(struct past, record.errors));
    add_metric(json, view, "tenant_posted_calls_total", "counter", offsetof(struct past, record.posted));
    add_metric(json, view, "tenant_replayed_steps_total", "counter", offsetof(struct past, record.replayed));
    json_add(json, "# TYPE gputax_proxy_tenant_calls_total counter\n");
    for (size_t at = 0; at < view->living; at++)
        for (size_t call = 0; call < CALL_COUNT; call++)
            if (view->tenants[at].record.calls[call] != 0)
                json_add(json, "gputax_proxy_tenant_calls_total{tenant=\"%llu\",call=\"%s\"} %llu\n",
                         (unsigned long long)view->tenants[at].id, call_names[call],
                         (unsigned long long)view->tenants[at].record.calls[call]);
    json_add(json, "# TYPE gputax_proxy_calls_total counter\n");
    for (size_t call = 0; call < CALL_COUNT; call++)
        if (view->totals.calls[call] != 0)
            json_add(json, "gputax_proxy_calls_total{call=\"%s\"} %llu\n", call_names[call],
                     (unsigned long long)view->totals.calls[call]);
}

/* --- requests --- */

enum request { WANTS_JSON, WANTS_HTTP, WANTS_EVICT };

static bool begins(const char *text, size_t used, const char *word)
{
    size_t length = strlen(word);
    return memcmp(text, word, used < length ? used : length) == 0;
}

/* What the reader asks for. Whoever begins otherwise (with a newline, say) or ends its words is answered at once. */
static enum request read_request(int reader, uint64_t *tenant)
{
    static const char get[] = "GET ", evict[] = "evict ";
    char request[4096];
    size_t used = 0;
    struct pollfd ready = {.fd = reader, .events = POLLIN};
    uint64_t start = now_ns();
    for (uint64_t waited_ms = 0; waited_ms < REQUEST_MS && used < sizeof request - 1;
         waited_ms = (now_ns() - start) / 1000000) {
        if (poll(&ready, 1, (int)(REQUEST_MS - waited_ms)) <= 0)
            continue;
        ssize_t part = recv(reader, request + used, sizeof request - 1 - used, MSG_DONTWAIT);
        if (part <= 0)
            break;
        used += (size_t)part;
        if (!begins(request, used, get) && !begins(request, used, evict))
            return WANTS_JSON;
        if (memchr(request, '\n', used) != NULL)
            break;
    }
    request[used] = 0;
    if (used >= sizeof evict - 1 && begins(request, used, evict)) {
        *tenant = strtoull(request + sizeof evict - 1, NULL, 10);
        return WANTS_EVICT;
    }
    return used >= sizeof get - 1 ? WANTS_HTTP : WANTS_JSON;
}

static void answer_eviction(struct json *text, const struct reader *reader, uint64_t tenant)
{
    if (!reader->trusted)
        json_add(text, "{\"error\": \"only the user of the proxy may evict a tenant\"}\n");
    else if (broker_evict(reader->broker, tenant))
        json_add(text, "{\"evicted\": %llu}\n", (unsigned long long)tenant);
    else
        json_add(text, "{\"error\": \"there is no tenant %llu\"}\n", (unsigned long long)tenant);
}

/* One reader at a time copies the counters, so that a tenant waits for one copy and not for as many as there are readers. */
static void write_answer(struct json *text, const struct reader *reader, bool http)
{
    static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
    struct view view;
    pthread_mutex_lock(&turn);
    bool seen = take_view(reader, &view);
    pthread_mutex_unlock(&turn);
    if (!seen)
        return;
    if (http && reader->place == 0) { /* a place has its document only */
        json_add(text, "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n\r\n");
        write_metrics(text, reader->broker, &view);
    } else {
        write_json(text, reader->broker, &view, reader->place == 0);
    }
    free(view.tenants);
}

static void serve_reader(const struct reader *reader)
{
    struct timeval patience = {.tv_sec = READER_MS / 1000};
    setsockopt(reader->socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    struct json text = {.grows = true};
    uint64_t tenant = 0;
    enum request request = read_request(reader->socket, &tenant);
    if (request == WANTS_EVICT)
        answer_eviction(&text, reader, tenant);
    else
        write_answer(&text, reader, request == WANTS_HTTP);
    for (size_t sent = 0; !text.overflow && sent < text.used;) {
        ssize_t part = send(reader->socket, text.data + sent, text.used - sent, MSG_NOSIGNAL);
        if (part <= 0)
            break;
        sent += (size_t)part;
    }
    free(text.data);
    close(reader->socket);
}

/* The operator is root or the user that runs the broker, and not in a container of its own (whose processes have no number
 * here): root there is a tenant. Of others the identity counts, as for tenants. */
static bool know_reader(struct reader *reader)
{
    struct ucred who;
    socklen_t size = sizeof who;
    if (getsockopt(reader->socket, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0)
        return false;
    reader->trusted = who.pid != 0 && (who.uid == 0 || who.uid == geteuid());
    if (reader->trusted)
        return true;
    struct wire_peer peer = {.pid = who.pid, .uid = who.uid, .gid = who.gid};
    int process;
    struct identity_name name = identity_read(reader->socket, &peer, reader->broker->policy.by_process, &process);
    if (process >= 0)
        close(process);
    pthread_mutex_lock(&reader->broker->lock);
    for (const struct identity *at = reader->broker->identities; at != NULL; at = at->next)
        if (identity_same(&at->name, &name))
            reader->identity = at->number;
    pthread_mutex_unlock(&reader->broker->lock);
    return true;
}

static sem_t places, strangers; /* for readers */

static void leave(const struct reader *reader)
{
    if (!reader->trusted)
        sem_post(&strangers);
    sem_post(&places);
}

static void *reader_main(void *argument)
{
    struct reader reader = *(struct reader *)argument;
    free(argument);
    serve_reader(&reader);
    leave(&reader);
    return NULL;
}

/* Runs `body` in a thread of its own, which nobody waits for. */
static bool begin_thread(void *(*body)(void *), const struct reader *given)
{
    struct reader *reader = malloc(sizeof *reader);
    pthread_t thread;
    if (reader == NULL)
        return false;
    *reader = *given;
    if (pthread_create(&thread, NULL, body, reader) != 0) {
        free(reader);
        return false;
    }
    pthread_detach(thread);
    return true;
}

static void *status_main(void *argument)
{
    struct reader listener = *(struct reader *)argument;
    free(argument);
    for (;;) {
        struct reader reader = {.broker = listener.broker,
                                .place = listener.place,
                                .socket = accept4(listener.socket, NULL, NULL, SOCK_CLOEXEC)};
        if (reader.socket < 0) {
            if (listener.broker->stopping)
                return NULL;
            poll(NULL, 0, KEPT_OPEN_MS); /* out of descriptors, or a reader that is gone again */
            continue;
        }
        if (reader.place != 0) {
            serve_reader(&reader);
            continue;
        }
        if (!know_reader(&reader) || (!reader.trusted && sem_trywait(&strangers) != 0)) {
            close(reader.socket);
            continue;
        }
        while (sem_wait(&places) != 0) {
        }
        if (begin_thread(reader_main, &reader))
            continue;
        serve_reader(&reader); /* out of threads: one after another is better than not at all */
        leave(&reader);
    }
}

bool status_begin(struct broker *broker, int listener, unsigned int place)
{
    struct reader made = {.broker = broker, .socket = listener, .place = place};
    return (place != 0 || (sem_init(&places, 0, READERS_MOST) == 0 && sem_init(&strangers, 0, STRANGERS_MOST) == 0)) &&
           begin_thread(status_main, &made);
}

int status_check(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = CHECK_S};
    char first = 0;
    int reader = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (reader < 0 || strlen(path) >= sizeof address.sun_path) {
        fprintf(stderr, "gputax-proxy: %s is not the path of a socket\n", path);
        return 1;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    setsockopt(reader, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience); /* also how long connect may wait */
    setsockopt(reader, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    errno = 0;
    bool answers = connect(reader, (const struct sockaddr *)&address, sizeof address) == 0 &&
                   send(reader, "\n", 1, MSG_NOSIGNAL) == 1 && recv(reader, &first, 1, 0) == 1 && first == '{';
    if (!answers)
        fprintf(stderr, "gputax-proxy: no proxy answers at %s: %s\n", path,
                errno == 0 ? "it closed the connection" : strerror(errno));
    close(reader);
    return answers ? 0 : 1;
}
