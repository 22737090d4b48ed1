/* What libvgpu does with the state of this folder around a fork: the child is a new tenant and has none of it. */
#ifndef GPUTAX_DRIVER_FORK_H
#define GPUTAX_DRIVER_FORK_H

void libraries_lock(void);
void libraries_unlock(void);
void libraries_reset(void);

void graphs_lock(void);
void graphs_unlock(void);
void graphs_reset(void);

void pools_lock(void);
void pools_unlock(void);
void pools_reset(void);

void host_lock(void);
void host_unlock(void);
void host_reset(void);

/* In this order: a library's lock is held while a module is loaded. */
static inline void driver_before_fork(void)
{
    libraries_lock();
    graphs_lock();
    pools_lock();
    host_lock();
}

static inline void driver_after_fork_parent(void)
{
    host_unlock();
    pools_unlock();
    graphs_unlock();
    libraries_unlock();
}

static inline void driver_after_fork_child(void)
{
    host_reset();
    pools_reset();
    graphs_reset();
    libraries_reset();
}

#endif
