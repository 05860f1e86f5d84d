/// Threads that share the units of a task, for JIT code: a bundle takes the caller's `parallel_for`.
///
/// * Every thread has a share of the units, one after the other, so that what one task has left in a core's cache is there for the
///   next task. It takes most of it at once, by an atomic counter, then the rest, and then a few units at a time from others.
/// * The caller works too, and waits for nobody who has not begun.
/// * Threads begin with the first task of several units.
/// * The workers are asleep between tasks, but for tens of microseconds after each, in which the next one mostly comes: it is
///   begun and ended by atomic counters alone. Who waits without sleeping lets others have the processor, so that several teams
///   on few processors lose nothing.
/// * They keep off the caller's processor: a scheduler may put a thread that wakes where its waker runs, to save power or to
///   keep a cache warm, and leave both there for milliseconds.
/// * Callers of several teams share the processors: each has as many threads as come to it, if only its own. So many teams on few
///   processors do not wake workers who would only take turns with other callers.
/// * One task at a time: a caller who finds the workers busy, which is also what a task inside a task does, computes its units alone.
/// * The child of a fork has no workers, and computes alone as well.
///
/// Nothing here knows how large the C library's objects are: this is compiled once for all of them.
#define _GNU_SOURCE
#include "libjit.h"

#if defined(__linux__) || defined(__APPLE__)
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

typedef void (*task_t)(void *pointers, dim_t first, dim_t last);

/// A mutex or a condition, larger than that of any C library.
typedef struct {
  _Alignas(16) char bytes[128];
} shared_t;

/// Added to the number of workers inside a task.
#define CLOSED (1 << 30)

#define MUTEX(object) ((pthread_mutex_t *)(void *)&(object))
#define CONDITION(object) ((pthread_cond_t *)(void *)&(object))

/// The units of one thread: those up to `end` that nobody has taken yet. On a cache line of its own.
typedef struct {
  _Alignas(64) dim_t next;
  dim_t end;
} share_t;

typedef struct {
  pthread_t thread;
  void *team;
  int number;
} member_t;

typedef struct {
  /// Only who sleeps, or wakes others, takes the mutex.
  shared_t mutex, woken, idle;
  /// The task.
  task_t run;
  void *pointers;
  dim_t grab;
  /// How many tasks there have been, and how many workers are inside the present one. With CLOSED no more may join.
  _Alignas(64) unsigned tasks;
  int inside;
  /// How many workers sleep, whether the caller does, and whether threads are to end.
  _Alignas(64) int asleep;
  bool waiting, closing;
  /// Whether a caller has the workers.
  _Alignas(64) bool busy;
  pid_t process;
  /// How many callers of this process are inside a task now, whatever their team, and how many processors there are for them.
  int *callers, processors;
  /// So many tasks are still computed without workers: there were too many callers a short while ago.
  int alone;
  /// Which processor the last task was begun on; -1 before the first.
  int processor;
  /// How many threads there are, how many there are to be, and their shares. The first is the caller's.
  int count, wanted;
  member_t *members;
  _Alignas(64) share_t shares[];
} workers_t;

/// Tens of microseconds, where relaxing takes as long as on the processors this was measured on.
#define SPINS 1000

/// So often in between, a thread that waits lets others have the processor: several teams may share it.
#define YIELD_AFTER 32

/// Grabs of others in each share, so that a thread that is late holds them up little.
#define GRABS 8

/// After so many tasks it costs nothing to ask the system once.
#define ASK_AFTER 256

/// Other callers are between two tasks at times: only after so many tasks without them are they thought to be gone.
#define GONE_AFTER 16

INLINE void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __builtin_arm_isb(15);
#endif
}

/// What a thread does that waits, for the `round`th time: nothing, or what others want to do.
INLINE void await(int round) {
  if (round % YIELD_AFTER == YIELD_AFTER - 1) sched_yield();
  else relax();
}

/// Computes all units of a share that nobody has taken yet, most of them in one call where it is its own: units that follow each
/// other may have work in common. What is left is for others that are done earlier, who take a few at a time.
static void compute_share(const workers_t *workers, share_t *share, bool own) {
  dim_t first = __atomic_load_n(&share->next, __ATOMIC_RELAXED);
  while (first < share->end) {
    dim_t left = share->end - first, last = first + (own ? left - left / 3 : min_dim(workers->grab, left));
    if (!__atomic_compare_exchange_n(&share->next, &first, last, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) continue;
    workers->run(workers->pointers, first, last);
    first = __atomic_load_n(&share->next, __ATOMIC_RELAXED);
  }
}

static void compute(workers_t *workers, int own) {
  for (int i = 0; i < workers->count; i++) compute_share(workers, &workers->shares[(own + i) % workers->count], !i);
}

/// How many threads of a team may be awake: all of them, unless other callers need processors too.
INLINE int places(const workers_t *workers) {
  int callers = __atomic_load_n(workers->callers, __ATOMIC_RELAXED);
  return callers > 1 ? workers->processors / callers : workers->wanted;
}

/// Whether the task that is open, if one is, has one more worker.
static bool join(workers_t *workers) {
  int inside = __atomic_load_n(&workers->inside, __ATOMIC_RELAXED);
  while (!(inside & CLOSED))
    if (__atomic_compare_exchange_n(&workers->inside, &inside, inside + 1, true, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
      return true;
  return false;
}

/// The caller says that it sleeps before it looks who is inside, a worker leaves before it looks who sleeps: one sees the other.
static void leave(workers_t *workers) {
  if (__atomic_sub_fetch(&workers->inside, 1, __ATOMIC_SEQ_CST) != CLOSED) return;
  if (!__atomic_load_n(&workers->waiting, __ATOMIC_SEQ_CST)) return;
  pthread_mutex_lock(MUTEX(workers->mutex));
  pthread_cond_signal(CONDITION(workers->idle));
  pthread_mutex_unlock(MUTEX(workers->mutex));
}

/// Sleeps until there is a task after the one `seen`. False where there will be none.
static bool sleep_after(workers_t *workers, unsigned seen) {
  pthread_mutex_lock(MUTEX(workers->mutex));
  __atomic_add_fetch(&workers->asleep, 1, __ATOMIC_SEQ_CST);
  while (!workers->closing && __atomic_load_n(&workers->tasks, __ATOMIC_SEQ_CST) == seen)
    pthread_cond_wait(CONDITION(workers->woken), MUTEX(workers->mutex));
  __atomic_sub_fetch(&workers->asleep, 1, __ATOMIC_SEQ_CST);
  bool ends = workers->closing;
  pthread_mutex_unlock(MUTEX(workers->mutex));
  return !ends;
}

static void *worker(void *argument) {
  const member_t *member = argument;
  workers_t *workers = member->team;
  unsigned seen = 0;
  for (;;) {
    for (int i = 0; i < SPINS && __atomic_load_n(&workers->tasks, __ATOMIC_RELAXED) == seen; i++) {
      if (member->number >= places(workers)) break;
      await(i);
    }
    unsigned tasks = __atomic_load_n(&workers->tasks, __ATOMIC_ACQUIRE);
    if (tasks == seen) {
      if (!sleep_after(workers, seen)) return NULL;
    } else {
      seen = tasks;
      if (member->number >= places(workers) || !join(workers)) continue;
      compute(workers, member->number);
      leave(workers);
    }
  }
}

/// A team of so many threads, of which none has begun. NULL where there is no memory. All teams of a process share its processors,
/// and a counter of callers, which is 0 at first.
void *libjit_workers_create(int threads, int processors, int *callers) {
  size_t size = sizeof(workers_t) + (size_t)threads * sizeof(share_t);
  workers_t *workers = aligned_alloc(_Alignof(workers_t), size);
  member_t *members = calloc((size_t)threads, sizeof(member_t));
  if (!workers || !members) {
    free(workers);
    free(members);
    return NULL;
  }
  __builtin_memset(workers, 0, size);
  pthread_mutex_init(MUTEX(workers->mutex), NULL);
  pthread_cond_init(CONDITION(workers->woken), NULL);
  pthread_cond_init(CONDITION(workers->idle), NULL);
  workers->inside = CLOSED;
  workers->process = getpid();
  workers->processors = processors;
  workers->callers = callers;
  workers->processor = -1;
  workers->members = members;
  workers->count = 1;
  workers->wanted = threads;
  return workers;
}

/// Begins the threads that are missing; as many as the system allows.
static void begin(workers_t *workers) {
  while (workers->count < workers->wanted) {
    member_t *member = &workers->members[workers->count];
    *member = (member_t){.team = workers, .number = workers->count};
    if (pthread_create(&member->thread, NULL, worker, member))
      workers->wanted = workers->count;
    else
      workers->count++;
  }
}

/// Ends the threads. Tasks may still be running: whoever computes them finishes them, and the memory is not freed.
void libjit_workers_destroy(void *handle) {
  workers_t *workers = handle;
  if (workers->process == getpid()) {
    pthread_mutex_lock(MUTEX(workers->mutex));
    workers->closing = true;
    pthread_cond_broadcast(CONDITION(workers->woken));
    pthread_mutex_unlock(MUTEX(workers->mutex));
    for (int i = 1; i < workers->count; i++) pthread_join(workers->members[i].thread, NULL);
    if (__atomic_exchange_n(&workers->busy, true, __ATOMIC_ACQUIRE)) return;
  }
  free(workers->members);
  free(workers);
}

/// Leaves the workers all processors that the caller may use but the one that it is on. Which those are is asked when it moves,
/// and now and then, since they may change while it stays. Where there is no other, the system refuses the empty set, and the
/// workers stay where they are.
static void keep_off(workers_t *workers) {
#if defined(__linux__)
  int processor = sched_getcpu();
  if (processor == workers->processor && workers->tasks % ASK_AFTER) return;
  workers->processor = processor;
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof(usable), &usable)) return;
  CPU_CLR(processor, &usable);
  for (int i = 1; i < workers->count; i++) pthread_setaffinity_np(workers->members[i].thread, sizeof(usable), &usable);
#endif
}

static void wake(workers_t *workers) {
  pthread_mutex_lock(MUTEX(workers->mutex));
  pthread_cond_broadcast(CONDITION(workers->woken));
  pthread_mutex_unlock(MUTEX(workers->mutex));
}

/// Sleeps until no worker is inside the task.
static void sleep_until_idle(workers_t *workers) {
  pthread_mutex_lock(MUTEX(workers->mutex));
  __atomic_store_n(&workers->waiting, true, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&workers->inside, __ATOMIC_SEQ_CST) != CLOSED)
    pthread_cond_wait(CONDITION(workers->idle), MUTEX(workers->mutex));
  __atomic_store_n(&workers->waiting, false, __ATOMIC_RELAXED);
  pthread_mutex_unlock(MUTEX(workers->mutex));
}

/// Whether a caller that has the workers had better leave them asleep.
static bool is_crowded(workers_t *workers) {
  if (places(workers) < 2) workers->alone = GONE_AFTER;
  else if (workers->alone) workers->alone--;
  return workers->alone;
}

/// Calls `run` for all units, with the workers. Nobody else has them.
static void share(workers_t *workers, task_t run, void *pointers, dim_t units) {
  begin(workers);
  keep_off(workers);
  workers->run = run;
  workers->pointers = pointers;
  workers->grab = max_dim(1, units / (workers->count * GRABS));
  for (int i = 0; i < workers->count; i++) {
    workers->shares[i].next = units * i / workers->count;
    workers->shares[i].end = units * (i + 1) / workers->count;
  }
  __atomic_store_n(&workers->inside, 0, __ATOMIC_RELEASE);
  __atomic_store_n(&workers->tasks, workers->tasks + 1, __ATOMIC_SEQ_CST);
  // A worker says that it sleeps before it looks for a task.
  if (__atomic_load_n(&workers->asleep, __ATOMIC_SEQ_CST)) wake(workers);
  compute(workers, 0);
  __atomic_or_fetch(&workers->inside, CLOSED, __ATOMIC_ACQ_REL);
  for (int i = 0; i < SPINS && __atomic_load_n(&workers->inside, __ATOMIC_ACQUIRE) != CLOSED; i++) await(i);
  if (__atomic_load_n(&workers->inside, __ATOMIC_ACQUIRE) != CLOSED) sleep_until_idle(workers);
}

/// Calls `run(pointers, first, last)` until each of the units 0 <= i < units was in one call, and returns when all have.
void libjit_workers_run(void *handle, task_t run, void *pointers, dim_t units) {
  workers_t *workers = handle;
  if (workers->process != getpid()) {
    run(pointers, 0, units);
    return;
  }
  __atomic_add_fetch(workers->callers, 1, __ATOMIC_RELAXED);
  if (__atomic_exchange_n(&workers->busy, true, __ATOMIC_ACQUIRE)) {
    run(pointers, 0, units);
  } else {
    if (is_crowded(workers)) run(pointers, 0, units);
    else share(workers, run, pointers, units);
    __atomic_store_n(&workers->busy, false, __ATOMIC_RELEASE);
  }
  __atomic_sub_fetch(workers->callers, 1, __ATOMIC_RELAXED);
}
#endif
