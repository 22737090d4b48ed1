/* The status sockets: one JSON document per connection, or Prometheus text for those who speak HTTP. */
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
#include "proxy/proxy.h"

enum {
    SOFT_REPORT_BYTES = 4096,
    REQUEST_MS =
        1000, /* a reader that wants HTTP has said so by then, also on a busy node; who says nothing wants JSON */
    READER_MS = 1000, /* a reader that takes nothing for so long is dropped */
    KEPT_OPEN_MS = 2,
    READERS_MOST = 32, /* at once, each in a thread of its own; more of them wait to be accepted */
    CHECK_S = 5,
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

static void add_record(struct json *json, const struct record *record)
{
    json_add(json, "{\"id\": %llu, \"pid\": %ld, \"uid\": %lu, \"transport\": ", (unsigned long long)record->id,
             (long)record->peer.pid, (unsigned long)record->peer.uid);
    json_string(json, record->transport);
    if (record->peer.place != 0)
        json_add(json, ", \"place\": %u", record->peer.place);
    json_add(json, ", \"memory_bytes\": %llu, \"memory_limit_bytes\": %llu, ", (unsigned long long)record->memory_bytes,
             (unsigned long long)record->memory_limit_bytes);
    if (record->ended != NULL) {
        json_add(json, "\"ended\": ");
        json_string(json, record->ended);
        json_add(json, ", ");
    }
    add_counters(json, record);
    json_add(json, "}");
}

/* What the software device says of its compiler; other backends say nothing. */
static void add_soft_report(struct json *json, const struct backend *backend)
{
    char report[SOFT_REPORT_BYTES];
    int bytes = backend->soft_report == NULL ? 0 : backend->soft_report(report, sizeof report);
    if (bytes > 0 && (size_t)bytes < sizeof report)
        json_add(json, ", \"software\": %s", report);
}

/* Whether the reader of a place's socket may know of this tenant; place 0 is the operator's own socket. */
static bool shown_at(unsigned int place, const struct tenant *tenant)
{
    return place == 0 || tenant->record->peer.place == place;
}

/* What says something about others: how many there are, and how busy the node is. */
static void add_node(struct json *json, const struct proxy *proxy)
{
    uint32_t foreign = proxy->foreign_milli < proxy->usable_milli ? proxy->foreign_milli : proxy->usable_milli;
    json_add(json, "\"active_tenants\": %u, \"cores_free\": %.3f, \"places\": %u, ", proxy->active_tenants,
             (proxy->usable_milli - foreign) / 1000.0, proxy->places);
}

static void add_document(struct json *json, struct proxy *proxy, unsigned int place)
{
    json_add(json, "{\"pid\": %ld, \"backend\": ", (long)getpid());
    json_string(json, proxy->backend.path);
    json_add(json, ", \"device\": ");
    json_string(json, proxy->backend.name);
    add_soft_report(json, &proxy->backend);
    json_add(json, ", \"transports\": [");
    for (const char *const *name = wire_transports; *name != NULL; name++) {
        json_add(json, name == wire_transports ? "" : ", ");
        json_string(json, *name);
    }
    json_add(json, "], \"wait_policy\": \"%s\", \"spin_us\": %u, ", proxy_wait_policy(proxy), proxy->spin_us);
    if (place == 0)
        add_node(json, proxy);
    json_add(json, "\"clears_memory\": \"%s\", \"tenants\": [",
             proxy->clears_memory ? "the proxy, before it is handed out" : "the backend, when it is freed");
    const char *comma = "";
    uint64_t memory = 0, living = 0;
    for (const struct tenant *tenant = proxy->tenants; tenant != NULL; tenant = tenant->next) {
        if (tenant->wire == NULL || !shown_at(place, tenant)) /* still in the handshake, or somebody else's */
            continue;
        json_add(json, "%s", comma);
        add_record(json, tenant->record);
        memory += tenant->record->memory_bytes;
        living++;
        comma = ", ";
    }
    json_add(json, "], \"ended_tenants\": [");
    /* At a place they may be those of a container that had it before. */
    uint64_t ended = place == 0 ? proxy->ended_count : 0;
    uint64_t first = ended > ENDED_KEPT ? ended - ENDED_KEPT : 0;
    for (uint64_t at = first; at < ended; at++) {
        json_add(json, at == first ? "" : ", ");
        add_record(json, proxy->ended[at % ENDED_KEPT]);
    }
    json_add(json, "], \"totals\": {\"tenants\": %llu, \"ended\": %llu, \"memory_bytes\": %llu, ",
             (unsigned long long)living, (unsigned long long)ended, (unsigned long long)memory);
}

/* Sums over all tenants that ever were; at a place, over its living ones. */
static void sum_up(const struct proxy *proxy, struct record *sums, unsigned int place)
{
    memset(sums, 0, sizeof *sums);
    if (place == 0)
        memcpy(sums, proxy->totals, sizeof *sums);
    for (const struct tenant *tenant = proxy->tenants; tenant != NULL; tenant = tenant->next) {
        if (!shown_at(place, tenant))
            continue;
        for (size_t call = 0; call < CALL_COUNT; call++)
            sums->calls[call] += tenant->record->calls[call];
        sums->posted += tenant->record->posted;
        sums->replayed += tenant->record->replayed;
        sums->errors += tenant->record->errors;
        sums->refused += tenant->record->refused;
        sums->bytes_in += tenant->record->bytes_in;
        sums->bytes_out += tenant->record->bytes_out;
        sums->cleared_bytes += tenant->record->cleared_bytes;
        sums->cleared_ns += tenant->record->cleared_ns;
        sums->throttled_ns += tenant->record->throttled_ns;
        sums->memory_bytes += tenant->record->memory_bytes;
    }
}

static void write_json(struct json *json, struct proxy *proxy, unsigned int place)
{
    struct record sums;
    pthread_mutex_lock(&proxy->lock);
    add_document(json, proxy, place);
    sum_up(proxy, &sums, place);
    pthread_mutex_unlock(&proxy->lock);
    add_counters(json, &sums);
    json_add(json, "}}\n");
}

/* One metric of all living tenants. */
static void add_metric(struct json *json, const struct proxy *proxy, const char *name, const char *type, size_t offset)
{
    json_add(json, "# TYPE gputax_proxy_%s %s\n", name, type);
    for (const struct tenant *tenant = proxy->tenants; tenant != NULL; tenant = tenant->next) {
        if (tenant->wire == NULL)
            continue;
        const _Atomic uint64_t *value = (const _Atomic uint64_t *)(const void *)((const char *)tenant->record + offset);
        json_add(json, "gputax_proxy_%s{tenant=\"%llu\",pid=\"%ld\"} %llu\n", name,
                 (unsigned long long)tenant->record->id, (long)tenant->record->peer.pid, (unsigned long long)*value);
    }
}

static void write_metrics(struct json *json, struct proxy *proxy)
{
    struct record sums;
    pthread_mutex_lock(&proxy->lock);
    sum_up(proxy, &sums, 0);
    json_add(json, "# TYPE gputax_proxy_info gauge\ngputax_proxy_info{device=");
    json_string(json, proxy->backend.name);
    json_add(json, ",backend=");
    json_string(json, proxy->backend.path);
    json_add(json, ",wait_policy=\"%s\"} 1\n", proxy_wait_policy(proxy));
    json_add(json, "# TYPE gputax_proxy_tenants_ended_total counter\ngputax_proxy_tenants_ended_total %llu\n",
             (unsigned long long)proxy->ended_count);
    json_add(json, "# TYPE gputax_proxy_active_tenants gauge\ngputax_proxy_active_tenants %u\n", proxy->active_tenants);
    add_metric(json, proxy, "tenant_memory_bytes", "gauge", offsetof(struct record, memory_bytes));
    add_metric(json, proxy, "tenant_memory_limit_bytes", "gauge", offsetof(struct record, memory_limit_bytes));
    add_metric(json, proxy, "tenant_errors_total", "counter", offsetof(struct record, errors));
    add_metric(json, proxy, "tenant_posted_calls_total", "counter", offsetof(struct record, posted));
    add_metric(json, proxy, "tenant_replayed_steps_total", "counter", offsetof(struct record, replayed));
    json_add(json, "# TYPE gputax_proxy_tenant_calls_total counter\n");
    for (const struct tenant *tenant = proxy->tenants; tenant != NULL; tenant = tenant->next)
        for (size_t call = 0; tenant->wire != NULL && call < CALL_COUNT; call++)
            if (tenant->record->calls[call] != 0)
                json_add(json, "gputax_proxy_tenant_calls_total{tenant=\"%llu\",call=\"%s\"} %llu\n",
                         (unsigned long long)tenant->record->id, call_names[call],
                         (unsigned long long)tenant->record->calls[call]);
    pthread_mutex_unlock(&proxy->lock);
    json_add(json, "# TYPE gputax_proxy_calls_total counter\n");
    for (size_t call = 0; call < CALL_COUNT; call++)
        if (sums.calls[call] != 0)
            json_add(json, "gputax_proxy_calls_total{call=\"%s\"} %llu\n", call_names[call],
                     (unsigned long long)sums.calls[call]);
}

/* Whether the reader asks for HTTP. Whoever begins otherwise (with a newline, say) or ends its words is answered at once. */
static bool wants_http(int reader)
{
    static const char get[] = "GET ";
    const size_t decides = sizeof get - 1;
    char request[4096];
    size_t used = 0;
    struct pollfd ready = {.fd = reader, .events = POLLIN};
    uint64_t start = now_ns();
    for (uint64_t waited_ms = 0; waited_ms < REQUEST_MS && used < sizeof request;
         waited_ms = (now_ns() - start) / 1000000) {
        if (poll(&ready, 1, (int)(REQUEST_MS - waited_ms)) <= 0)
            continue;
        ssize_t part = recv(reader, request + used, sizeof request - used, MSG_DONTWAIT);
        if (part <= 0)
            break;
        used += (size_t)part;
        if (memcmp(request, get, used < decides ? used : decides) != 0)
            return false;
        if (memchr(request, '\n', used) != NULL)
            break;
    }
    return used >= decides;
}

/* One reader at a time copies the counters, so that a tenant waits for one copy and not for as many as there are readers. */
static void write_answer(struct json *text, struct proxy *proxy, bool http, unsigned int place)
{
    static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&turn);
    if (http) {
        json_add(text, "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n\r\n");
        write_metrics(text, proxy);
    } else {
        write_json(text, proxy, place);
    }
    pthread_mutex_unlock(&turn);
}

static void serve_reader(struct proxy *proxy, int reader, unsigned int place)
{
    struct timeval patience = {.tv_sec = READER_MS / 1000};
    setsockopt(reader, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    struct json text = {.grows = true};
    bool http = wants_http(reader); /* at a place too: with its request unread, a reader would be reset, not ended */
    write_answer(&text, proxy, http && place == 0, place);
    for (size_t sent = 0; !text.overflow && sent < text.used;) {
        ssize_t part = send(reader, text.data + sent, text.used - sent, MSG_NOSIGNAL);
        if (part <= 0)
            break;
        sent += (size_t)part;
    }
    free(text.data);
    close(reader);
}

struct status {
    struct proxy *proxy;
    int socket; /* the listener, or one reader */
    unsigned int place;
};

static sem_t places; /* for readers */

static void *reader_main(void *argument)
{
    struct status status = *(struct status *)argument;
    free(argument);
    serve_reader(status.proxy, status.socket, status.place);
    sem_post(&places);
    return NULL;
}

/* Runs `body` in a thread of its own, which nobody waits for. */
static bool begin_thread(void *(*body)(void *), struct proxy *proxy, int socket, unsigned int place)
{
    struct status *status = malloc(sizeof *status);
    pthread_t thread;
    if (status == NULL)
        return false;
    *status = (struct status){proxy, socket, place};
    if (pthread_create(&thread, NULL, body, status) != 0) {
        free(status);
        return false;
    }
    pthread_detach(thread);
    return true;
}

static void *status_main(void *argument)
{
    struct status status = *(struct status *)argument;
    free(argument);
    for (;;) {
        int reader = accept4(status.socket, NULL, NULL, SOCK_CLOEXEC);
        if (reader < 0) {
            if (proxy_stopping(status.proxy))
                return NULL;
            poll(NULL, 0, KEPT_OPEN_MS); /* out of descriptors, or a reader that is gone again */
            continue;
        }
        if (status.place != 0) {
            serve_reader(status.proxy, reader, status.place);
            continue;
        }
        while (sem_wait(&places) != 0) {
        }
        if (begin_thread(reader_main, status.proxy, reader, 0))
            continue;
        serve_reader(status.proxy, reader, 0); /* out of threads: one after another is better than not at all */
        sem_post(&places);
    }
}

bool status_begin(struct proxy *proxy, int listener, unsigned int place)
{
    return (place != 0 || sem_init(&places, 0, READERS_MOST) == 0) && begin_thread(status_main, proxy, listener, place);
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
