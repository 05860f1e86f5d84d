/// Threads that share the units of a task, for JIT code: a bundle takes the caller's `parallel_for`.
///
/// * A task is handed out in grabs of a few units by an atomic counter. The caller works too, and waits for nobody who has not begun.
/// * The workers are asleep between tasks, but for some microseconds after each, in which the next one mostly comes.
/// * One task at a time: a caller who finds the workers busy, which is also what a task inside a task does, computes its units alone.
/// * The child of a fork has no workers, and computes alone as well.
///
/// Nothing here knows how large the C library's objects are: this is compiled once for all of them.
#include "libjit.h"

#if defined(__linux__) || defined(__APPLE__)
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

typedef void (*task_t)(void *pointers, dim_t first, dim_t last);

/// A mutex or a condition, larger than that of any C library.
typedef struct {
  _Alignas(16) char bytes[128];
} shared_t;

#define MUTEX(object) ((pthread_mutex_t *)(void *)&(object))
#define CONDITION(object) ((pthread_cond_t *)(void *)&(object))

typedef struct {
  shared_t mutex, woken, idle;
  /// The task. The counter is on a cache line of its own.
  task_t run;
  void *pointers;
  dim_t units, grab;
  _Alignas(64) dim_t next;
  /// How many tasks there have been, how many workers are inside the present one, and whether more may join.
  _Alignas(64) unsigned tasks;
  int active;
  bool open, closing;
  /// Whether a caller has the workers.
  _Alignas(64) bool busy;
  pid_t process;
  int count;
  pthread_t threads[];
} workers_t;

/// About 20 microseconds.
#define SPINS 1000

/// Grabs for each thread, so that one that is late holds up the others little.
#define GRABS 8

INLINE void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __builtin_arm_isb(15);
#endif
}

static void compute(workers_t *workers) {
  for (;;) {
    dim_t first = __atomic_fetch_add(&workers->next, workers->grab, __ATOMIC_RELAXED);
    if (first >= workers->units) return;
    workers->run(workers->pointers, first, min_dim(first + workers->grab, workers->units));
  }
}

static void *worker(void *argument) {
  workers_t *workers = argument;
  unsigned seen = 0;
  pthread_mutex_lock(MUTEX(workers->mutex));
  while (!workers->closing) {
    if (!workers->open || workers->tasks == seen) {
      pthread_cond_wait(CONDITION(workers->woken), MUTEX(workers->mutex));
      continue;
    }
    seen = workers->tasks;
    workers->active++;
    pthread_mutex_unlock(MUTEX(workers->mutex));
    compute(workers);
    pthread_mutex_lock(MUTEX(workers->mutex));
    __atomic_store_n(&workers->active, workers->active - 1, __ATOMIC_RELEASE);
    if (workers->active == 0) pthread_cond_signal(CONDITION(workers->idle));
    pthread_mutex_unlock(MUTEX(workers->mutex));
    for (int i = 0; i < SPINS && __atomic_load_n(&workers->tasks, __ATOMIC_RELAXED) == seen; i++) relax();
    pthread_mutex_lock(MUTEX(workers->mutex));
  }
  pthread_mutex_unlock(MUTEX(workers->mutex));
  return NULL;
}

/// Starts threads beside the caller's; as many as the system allows. NULL where there is no memory.
void *libjit_workers_create(int threads) {
  size_t line = _Alignof(workers_t), size = sizeof(workers_t) + (size_t)threads * sizeof(pthread_t);
  workers_t *workers = aligned_alloc(line, (size + line - 1) / line * line);
  if (!workers) return NULL;
  __builtin_memset(workers, 0, size);
  pthread_mutex_init(MUTEX(workers->mutex), NULL);
  pthread_cond_init(CONDITION(workers->woken), NULL);
  pthread_cond_init(CONDITION(workers->idle), NULL);
  workers->process = getpid();
  for (int i = 1; i < threads; i++) {
    if (pthread_create(&workers->threads[workers->count], NULL, worker, workers)) break;
    workers->count++;
  }
  return workers;
}

/// Ends the threads. Tasks may still be running: whoever computes them finishes them, and the memory is not freed.
void libjit_workers_destroy(void *handle) {
  workers_t *workers = handle;
  if (workers->process == getpid()) {
    pthread_mutex_lock(MUTEX(workers->mutex));
    workers->closing = true;
    pthread_cond_broadcast(CONDITION(workers->woken));
    pthread_mutex_unlock(MUTEX(workers->mutex));
    for (int i = 0; i < workers->count; i++) pthread_join(workers->threads[i], NULL);
    if (__atomic_exchange_n(&workers->busy, true, __ATOMIC_ACQUIRE)) return;
  }
  free(workers);
}

/// Calls `run(pointers, first, last)` until each of the units 0 <= i < units was in one call, and returns when all have.
void libjit_workers_run(void *handle, task_t run, void *pointers, dim_t units) {
  workers_t *workers = handle;
  if (workers->process != getpid() || __atomic_exchange_n(&workers->busy, true, __ATOMIC_ACQUIRE)) {
    run(pointers, 0, units);
    return;
  }
  pthread_mutex_lock(MUTEX(workers->mutex));
  workers->run = run;
  workers->pointers = pointers;
  workers->units = units;
  workers->grab = max_dim(1, units / ((workers->count + 1) * GRABS));
  workers->next = 0;
  workers->open = true;
  __atomic_store_n(&workers->tasks, workers->tasks + 1, __ATOMIC_RELEASE);
  pthread_cond_broadcast(CONDITION(workers->woken));
  pthread_mutex_unlock(MUTEX(workers->mutex));
  compute(workers);
  for (int i = 0; i < SPINS && __atomic_load_n(&workers->active, __ATOMIC_ACQUIRE); i++) relax();
  pthread_mutex_lock(MUTEX(workers->mutex));
  workers->open = false;
  while (workers->active) pthread_cond_wait(CONDITION(workers->idle), MUTEX(workers->mutex));
  pthread_mutex_unlock(MUTEX(workers->mutex));
  __atomic_store_n(&workers->busy, false, __ATOMIC_RELEASE);
}
#endif
