/* The evidence: which proxy, backend and device served this process, and how many calls of each name it sent. */
#include <stdarg.h>
#include <stdio.h>

#include "calls/json.h"
#include "vgpu/connection.h"
#include "vgpu/vgpu.h"

__attribute__((visibility("default"))) int gputax_vgpu_describe(char *json, size_t capacity);

/* Returns the text's length, or -1 if this process has no connection or the text does not fit. */
int gputax_vgpu_describe(char *json, size_t capacity)
{
    struct connection *connection = vgpu_connection();
    char policy[16] = "unknown";
    struct gputaxWaitPolicy_in in = {.capacity = sizeof policy};
    struct question question = {.call = CALL_gputaxWaitPolicy,
                                .in = &in,
                                .in_bytes = sizeof in,
                                .out_variable = policy,
                                .out_capacity = sizeof policy,
                                .text = true};
    vgpu_ask(&question); /* its error leaves "unknown": the counts are still worth having */
    if (connection->wire == NULL || json == NULL)
        return -1;
    struct json text = {.data = json, .capacity = capacity};
    json_add(&text, "{\"tenant\": %llu, \"transport\": ", (unsigned long long)connection->welcome.tenant);
    json_string(&text, connection->wire->ops->name);
    json_add(&text, ", \"backend\": ");
    json_string(&text, connection->welcome.backend);
    json_add(&text, ", \"device\": ");
    json_string(&text, connection->welcome.device);
    json_add(&text, ", \"wait_policy\": ");
    json_string(&text, policy);
    json_add(&text, ", \"lost\": %s, \"calls\": {", connection->lost ? "true" : "false");
    const char *comma = "";
    for (size_t call = 0; call < CALL_COUNT; call++) {
        uint64_t count = __atomic_load_n(&connection->counts[call], __ATOMIC_RELAXED);
        if (count == 0)
            continue;
        json_add(&text, "%s\"%s\": %llu", comma, call_names[call], (unsigned long long)count);
        comma = ", ";
    }
    json_add(&text, "}}");
    return text.overflow ? -1 : (int)text.used;
}
