/* What libvgpu does with the state of this folder around a fork: the child is a new tenant and has none of it. */
#ifndef GPUTAX_DRIVER_FORK_H
#define GPUTAX_DRIVER_FORK_H

/* X(name) in this order: a library's lock is held while a module is loaded, a capture's while a node is added. */
#define DRIVER_STATES(X) X(captures) X(libraries) X(graphs) X(pools) X(host) X(default_streams) X(host_calls) X(storage)

#define DRIVER_STATE(name) \
    void name##_lock(void); \
    void name##_unlock(void); \
    void name##_reset(void);
DRIVER_STATES(DRIVER_STATE)
#undef DRIVER_STATE

static inline void driver_before_fork(void)
{
#define DRIVER_STATE(name) name##_lock();
    DRIVER_STATES(DRIVER_STATE)
#undef DRIVER_STATE
}

static inline void driver_after_fork_parent(void)
{
#define DRIVER_STATE(name) name##_unlock();
    DRIVER_STATES(DRIVER_STATE)
#undef DRIVER_STATE
}

static inline void driver_after_fork_child(void)
{
#define DRIVER_STATE(name) name##_reset();
    DRIVER_STATES(DRIVER_STATE)
#undef DRIVER_STATE
}

#endif
