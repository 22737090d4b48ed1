/* A compiler process's life: bound to its broker, it opens the backend and lets it serve the worker's texts.
 *
 * It keeps the broker's user, whose cache of compiled kernels it alone writes, and nothing else of its rights. */
#include "proxy/compiler.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "proxy/confine.h"
#include "proxy/worker.h"

int compiler_main(void)
{
    prctl(PR_SET_NAME, "gputax-compiler");
    const struct page *page = worker_map(WORKER_PAGE, sizeof *page);
    if (page == NULL) {
        fprintf(stderr, "gputax-proxy: --compiler is for the broker alone\n");
        return 2;
    }
    struct settings settings = page->settings;
    settings.backend[sizeof settings.backend - 1] = 0;
    /* SIGTERM, so that it can end the C compiler that it has started. */
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || getppid() != settings.broker)
        return 2;
    signal(SIGPIPE, SIG_IGN);
    void *library = dlopen(settings.backend, RTLD_NOW | RTLD_LOCAL);
    gputax_serve_compiler *serve = NULL;
    if (library != NULL)
        *(void **)&serve = dlsym(library, "gputaxServeCompiler");
    if (serve == NULL)
        return 3;
    const uint64_t measures = UINT64_C(1) << CONFINED_NO_NEW_PRIVILEGES | UINT64_C(1) << CONFINED_NOT_DUMPABLE |
                              UINT64_C(1) << CONFINED_NO_CORE | UINT64_C(1) << CONFINED_DESCRIPTORS |
                              UINT64_C(1) << CONFINED_NO_CAPABILITIES;
    confine(&(struct confinement){.software = true, .without = ~measures | settings.unconfined});
    return serve(WORKER_SOCKET);
}
