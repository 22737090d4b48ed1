/* Sums over the lines of an identity's workers. */
#include "proxy/account.h"

uint64_t account_used(const struct account *account, enum account_kind kind)
{
    uint64_t seats = atomic_load_explicit(&account->seats, memory_order_relaxed), sum = 0;
    for (uint64_t at = 0; at < seats && at < SEATS; at++)
        sum += atomic_load(&account->use[at][kind]);
    return sum;
}

bool account_take(struct account *account, uint32_t seat, enum account_kind kind, uint64_t amount, uint64_t most)
{
    if (amount > most)
        return false;
    atomic_fetch_add(&account->use[seat][kind], amount);
    if (account_used(account, kind) <= most)
        return true;
    account_give_back(account, seat, kind, amount);
    return false;
}

void account_give_back(struct account *account, uint32_t seat, enum account_kind kind, uint64_t amount)
{
    atomic_fetch_sub(&account->use[seat][kind], amount);
}

bool account_set(struct account *account, uint32_t seat, enum account_kind kind, uint64_t amount, uint64_t most)
{
    uint64_t before = atomic_exchange(&account->use[seat][kind], amount);
    if (most == 0 || account_used(account, kind) <= most)
        return true;
    atomic_store(&account->use[seat][kind], before);
    return false;
}

uint64_t account_launch(struct account *account, uint64_t per_second, uint64_t now_ns)
{
    if (per_second == 0)
        return 0;
    const uint64_t second = 1000000000;
    uint64_t each = second / per_second, burst = second / 10 > each ? second / 10 : each;
    uint64_t due = atomic_load(&account->next_launch_ns), next;
    do
        next = (due + burst < now_ns ? now_ns - burst : due) + each;
    while (!atomic_compare_exchange_weak(&account->next_launch_ns, &due, next));
    return next > now_ns ? next - now_ns : 0;
}

void account_clear(struct account *account, uint32_t seat)
{
    for (int kind = 0; kind < ACCOUNT_KINDS; kind++)
        atomic_store(&account->use[seat][kind], 0);
}
