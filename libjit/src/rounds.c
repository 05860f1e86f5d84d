/// The rounds of a loop that a session runs, for JIT code: in each one, networks are called and elements of lists are moved, until
/// the loop ends or needs what only the caller has: more memory, code for other extents, or an error.
///
/// A round that cannot be finished is taken back: lists and states are what they were before it, and it can be begun again.
/// A bundle has no such loops: nothing bounds what they need. The layouts are those of glowpy/backends/cpu/round_layout.py.
#include "libjit.h"

typedef int (*entry_t)(const void *constants, void **table, void *activations);

/// Why the rounds stop.
enum { ENDED, PAUSED, OTHER_EXTENTS, NO_ROOM, WRONG_INDEX, OTHER_ROWS, FAILED };

/// What the steps of a round do: glowpy.rounds.Do.
enum { CALL, AT, INSERT, ERASE, LENGTH, EMPTY, LIST, VALUE, UNLESS, GOTO };

/// A dimension is computed by steps over a stack: those from its place on, up to END.
enum { END, CONSTANT, EXTENT, ADD, MULTIPLY, DIVIDE, LEAST, GREATEST };
#define DEPTH 16

#define MAX_RANK 8

/// Elements, which are a multiple of this many bytes apart in what lists have been given.
#define APART 16

typedef struct {
  dim_t operation, number;
} sum_t;

/// A value: where it is, its extents, and how many bytes an element has. It is kept if its memory stays as long as the rounds do;
/// what a round writes goes to one of two memories, for it reads the other one: with room for so many bytes, of which it needs
/// some.
typedef struct {
  const char *elements;
  const dim_t *extents;
  dim_t rank, bytes, kept;
  char *memories[2];
  dim_t rooms[2], needed;
  dim_t shapes[2][MAX_RANK];
} value_t;

/// An element of a list, and its place among those that the lists began with, or -1.
typedef struct {
  const char *elements;
  const dim_t *extents;
  dim_t rank, origin;
} item_t;

/// A list, and for how many elements a round that could not be finished needs room.
typedef struct {
  item_t *items;
  dim_t count, room, needed;
} list_t;

/// A step of a round, with the places of values, lists, networks or steps.
typedef struct {
  dim_t what, a, b, c;
} step_t;

/// What a network takes: its pointer's place in the table, which value it is, and its extents, of those that a call begins with.
typedef struct {
  dim_t slot, value, rank, first;
} taken_t;

/// What a network gives: it may be in the place of what the network takes, which is copied there. Its dimensions, and how many
/// bytes it takes at most, are computed by steps.
typedef struct {
  dim_t slot, replaced, rank, first, room, value;
} given_t;

/// An extent, of those that a call begins with, and what it has to be, or decides.
typedef struct {
  dim_t place, number;
} known_t;

typedef struct {
  entry_t entry;
  const void *constants;
  void *activations;
  /// What symbols are, their bounds, and those that the function finds, which are the lowest until it does.
  dim_t *symbols;
  const dim_t *lows, *highs, *found;
  dim_t num_found;
  const taken_t *takes;
  dim_t num_takes;
  const given_t *gives;
  dim_t num_gives;
  /// Extents that say what a symbol is, and those that have to be what a dimension is.
  const known_t *saying;
  dim_t num_saying;
  const known_t *checked;
  dim_t num_checked;
  const sum_t *sums;
  /// The extents of what a call takes, and the dimensions of what it gives.
  dim_t *before;
  const dim_t *dims;
  /// Results that say whether an index led out of range: their values.
  const dim_t *tests;
  dim_t num_tests;
  /// Where the network is told the addresses of arrays.
  void **table;
  dim_t num_symbols;
} network_t;

/// What the next round has of this one: the value or list that a state is.
typedef struct {
  dim_t state, given;
} carried_t;

/// A value that is the next of some elements in each round, so many bytes on.
typedef struct {
  dim_t value, stride;
} scanned_t;

/// A value of each round, one after the other, all of one shape, which the first one says.
typedef struct {
  char *memory;
  dim_t value, room, used, needed, rank;
  dim_t extents[MAX_RANK];
} stacked_t;

/// What has been done to a list in this round: an element that was put in, or the one that was taken out.
typedef struct {
  dim_t list, position, was_erased;
  item_t item;
} done_t;

typedef struct {
  network_t **networks;
  value_t *values;
  dim_t num_values;
  list_t *lists;
  dim_t num_lists;
  const step_t *steps;
  dim_t num_steps;
  const carried_t *carried;
  dim_t num_carried;
  const carried_t *swapped;
  dim_t num_swapped;
  const scanned_t *scanned;
  dim_t num_scanned;
  stacked_t *stacks;
  dim_t num_stacks;
  done_t *done;
  dim_t num_done;
  /// What a round reads its number from.
  int64_t *number;
  /// Memory for what is put into lists, how much a round that could not be finished needs there, and how often it has been taken.
  char *next, *end;
  dim_t wanted, num_put;
  /// The value that says whether there is another round, or -1.
  dim_t keep;
  dim_t round, limit, patience, parity, goes_on;
} rounds_t;

// Python writes these as words of dim_t, as many of each as _WORDS and _TABLES say there; a unit test compares the numbers.
_Static_assert(sizeof(void *) == sizeof(dim_t), "a pointer is a word");
_Static_assert(sizeof(sum_t) == 2 * sizeof(dim_t), "sums");
_Static_assert(sizeof(value_t) == 26 * sizeof(dim_t), "values");
_Static_assert(sizeof(item_t) == 4 * sizeof(dim_t), "items");
_Static_assert(sizeof(list_t) == 4 * sizeof(dim_t), "lists");
_Static_assert(sizeof(step_t) == 4 * sizeof(dim_t), "steps");
_Static_assert(sizeof(taken_t) == 4 * sizeof(dim_t), "takes");
_Static_assert(sizeof(given_t) == 6 * sizeof(dim_t), "gives");
_Static_assert(sizeof(known_t) == 2 * sizeof(dim_t), "saying, checked");
_Static_assert(sizeof(carried_t) == 2 * sizeof(dim_t), "carried, swapped");
_Static_assert(sizeof(scanned_t) == 2 * sizeof(dim_t), "scanned");
_Static_assert(sizeof(stacked_t) == 14 * sizeof(dim_t), "stacks");
_Static_assert(sizeof(done_t) == 7 * sizeof(dim_t), "done");
_Static_assert(sizeof(network_t) == 23 * sizeof(dim_t), "network words");
_Static_assert(sizeof(rounds_t) == 28 * sizeof(dim_t), "rounds words");
_Static_assert(sizeof(int64_t) <= 2 * sizeof(dim_t), "the number of a round has two words");

INLINE dim_t floored(dim_t dividend, dim_t divisor) {
  dim_t quotient = dividend / divisor;
  return quotient - (dividend % divisor < 0);
}

/// What a dimension is. Divisors are positive.
static dim_t number_of(const sum_t *step, const dim_t *symbols) {
  dim_t stack[DEPTH], top = 0;
  for (; step->operation != END; step++) {
    if (step->operation <= EXTENT) {
      stack[top++] = step->operation == CONSTANT ? step->number : symbols[step->number];
      continue;
    }
    dim_t right = stack[--top], left = stack[top - 1], *result = stack + top - 1;
    switch (step->operation) {
      case ADD: *result = left + right; break;
      case MULTIPLY: *result = left * right; break;
      case DIVIDE: *result = floored(left, right); break;
      case LEAST: *result = left < right ? left : right; break;
      default: *result = left > right ? left : right;
    }
  }
  return stack[0];
}

static dim_t count_of(const dim_t *extents, dim_t rank) {
  dim_t count = 1;
  for (dim_t i = 0; i < rank; i++) count *= extents[i];
  return count;
}

static dim_t size_of(const value_t *v) { return v->bytes * count_of(v->extents, v->rank); }

/// Whether a value has one element, which is true or not.
INLINE bool is_single(const value_t *v) { return count_of(v->extents, v->rank) == 1; }

/// Finds out what the symbols of a network are. False if the network is not for these values.
static bool is_for(const network_t *n, const value_t *values) {
  for (const taken_t *t = n->takes; t < n->takes + n->num_takes; t++) {
    const value_t *v = values + t->value;
    if (v->rank != t->rank) return false;
    for (dim_t i = 0; i < t->rank; i++) n->before[t->first + i] = v->extents[i];
  }
  for (dim_t i = 0; i < n->num_saying; i++) n->symbols[n->saying[i].number] = n->before[n->saying[i].place];
  for (dim_t i = 0; i < n->num_found; i++) n->symbols[n->found[i]] = n->lows[n->found[i]];
  for (dim_t i = 0; i < n->num_symbols; i++)
    if (n->symbols[i] < n->lows[i] || n->symbols[i] > n->highs[i]) return false;
  for (dim_t i = 0; i < n->num_checked; i++)
    if (number_of(n->sums + n->checked[i].number, n->symbols) != n->before[n->checked[i].place]) return false;
  return true;
}

/// Makes room for a value of so many bytes in the memory of this round. False if there is not enough.
INLINE bool has_room(value_t *v, dim_t needed, dim_t parity) {
  v->needed = needed;
  return needed <= v->rooms[parity];
}

/// Calls a network.
static dim_t call(const rounds_t *r, const network_t *n) {
  dim_t parity = r->parity;
  bool enough = true;
  for (const given_t *g = n->gives; g < n->gives + n->num_gives; g++)
    enough &= has_room(r->values + g->value, number_of(n->sums + g->room, n->symbols), parity);
  if (!enough) return NO_ROOM;
  for (const taken_t *t = n->takes; t < n->takes + n->num_takes; t++) n->table[t->slot] = (void *)r->values[t->value].elements;
  for (const given_t *g = n->gives; g < n->gives + n->num_gives; g++) {
    char *memory = r->values[g->value].memories[parity];
    n->table[g->slot] = memory;
    const value_t *replaced = g->replaced < 0 ? NULL : r->values + n->takes[g->replaced].value;
    dim_t bytes = replaced ? size_of(replaced) : 0;
    if (bytes) __builtin_memcpy(memory, replaced->elements, bytes);
  }
  if (n->entry(n->constants, n->table, n->activations)) return FAILED;
  for (const given_t *g = n->gives; g < n->gives + n->num_gives; g++) {
    value_t *v = r->values + g->value;
    for (dim_t i = 0; i < g->rank; i++) v->shapes[parity][i] = number_of(n->sums + n->dims[g->first + i], n->symbols);
    v->elements = v->memories[parity];
    v->extents = v->shapes[parity];
    v->rank = g->rank;
    v->kept = false;
  }
  for (dim_t i = 0; i < n->num_tests; i++)
    if (*(const int64_t *)(const void *)r->values[n->tests[i]].elements) return WRONG_INDEX;
  return ENDED;
}

/// A position: the default if none is given. False if it is none, or lies outside.
static bool find(const rounds_t *r, dim_t place, dim_t least, dim_t most, dim_t standard, dim_t *position) {
  *position = standard;
  if (place < 0) return standard >= least;
  const value_t *v = r->values + place;
  if (!is_single(v)) return false;
  const void *element = v->elements;
  int64_t number = v->bytes == 4 ? *(const int32_t *)element : *(const int64_t *)element;
  if (number < least || number > most) return false;
  *position = (dim_t)number;
  return true;
}

static dim_t take_element(rounds_t *r, const step_t *s) {
  const list_t *l = r->lists + s->b;
  dim_t position, count = l->count;
  if (!find(r, s->c, -count, count - 1, 0, &position)) return WRONG_INDEX;
  const item_t *item = l->items + (position < 0 ? position + count : position);
  value_t *v = r->values + s->a;
  v->elements = item->elements;
  v->extents = item->extents;
  v->rank = item->rank;
  v->kept = true;
  return ENDED;
}

/// Whether a list has room for so many elements.
INLINE bool has_places(list_t *l, dim_t count) {
  l->needed = count;
  return count <= l->room;
}

static void put(list_t *l, dim_t position, item_t item) {
  for (dim_t i = l->count++; i > position; i--) l->items[i] = l->items[i - 1];
  l->items[position] = item;
}

static item_t take_out(list_t *l, dim_t position) {
  item_t item = l->items[position];
  l->count--;
  for (dim_t i = position; i < l->count; i++) l->items[i] = l->items[i + 1];
  return item;
}

/// An element of a list that is what a value is: in memory of its own, if that of the value does not stay.
static bool make_item(rounds_t *r, const value_t *v, item_t *item) {
  *item = (item_t){v->elements, v->extents, v->rank, -1};
  if (v->kept) return true;
  dim_t extents = (dim_t)sizeof(dim_t) * v->rank, size = size_of(v);
  dim_t data = (extents + APART - 1) / APART * APART, all = data + (size + APART - 1) / APART * APART;
  if (r->end - r->next < all) {
    r->wanted = all;
    return false;
  }
  item->extents = (const dim_t *)(const void *)r->next;
  item->elements = r->next + data;
  if (extents) __builtin_memcpy(r->next, v->extents, extents);
  if (size) __builtin_memcpy(r->next + data, v->elements, size);
  r->next += all;
  r->num_put++;
  return true;
}

static dim_t insert(rounds_t *r, const step_t *s) {
  list_t *l = r->lists + s->a;
  dim_t position, count = l->count;
  item_t item;
  if (!find(r, s->c, -count, count, count, &position)) return WRONG_INDEX;
  if (position < 0) position += count;
  if (!has_places(l, count + 1) || !make_item(r, r->values + s->b, &item)) return NO_ROOM;
  put(l, position, item);
  r->done[r->num_done++] = (done_t){s->a, position, false, item};
  return ENDED;
}

static dim_t erase(rounds_t *r, const step_t *s) {
  list_t *l = r->lists + s->a;
  dim_t position, count = l->count;
  if (!find(r, s->b, -count, count - 1, count - 1, &position) || !count) return WRONG_INDEX;
  if (position < 0) position += count;
  r->done[r->num_done++] = (done_t){s->a, position, true, take_out(l, position)};
  return ENDED;
}

/// Makes a value of its own of some elements.
static dim_t copy_value(rounds_t *r, value_t *to, const value_t *from) {
  dim_t size = size_of(from), parity = r->parity;
  to->kept = from->kept;
  to->rank = from->rank;
  to->elements = from->elements;
  to->extents = from->extents;
  if (from->kept) return ENDED;
  if (!has_room(to, size, parity)) return NO_ROOM;
  if (size) __builtin_memcpy(to->memories[parity], from->elements, size);
  for (dim_t i = 0; i < from->rank; i++) to->shapes[parity][i] = from->extents[i];
  to->elements = to->memories[parity];
  to->extents = to->shapes[parity];
  return ENDED;
}

static dim_t copy_list(list_t *to, const list_t *from) {
  if (!has_places(to, from->count)) return NO_ROOM;
  to->count = from->count;
  if (from->count) __builtin_memcpy(to->items, from->items, sizeof(item_t) * from->count);
  return ENDED;
}

static void count_elements(const rounds_t *r, value_t *v, const list_t *l) {
  *(int64_t *)(void *)v->memories[r->parity] = l->count;
  v->elements = v->memories[r->parity];
  v->extents = v->shapes[r->parity];
  v->rank = v->kept = 0;
}

/// Calls the first of some networks that is for these values.
static dim_t call_any(const rounds_t *r, dim_t first, dim_t count) {
  for (dim_t i = first; i < first + count; i++)
    if (is_for(r->networks[i], r->values)) return call(r, r->networks[i]);
  return OTHER_EXTENTS;
}

/// Computes a round, up to where the next one would begin.
static dim_t run_steps(rounds_t *r) {
  dim_t reason = ENDED;
  for (dim_t place = 0; place < r->num_steps && reason == ENDED; place++) {
    const step_t *s = r->steps + place;
    switch (s->what) {
      case CALL: reason = call_any(r, s->a, s->b); break;
      case AT: reason = take_element(r, s); break;
      case INSERT: reason = insert(r, s); break;
      case ERASE: reason = erase(r, s); break;
      case LENGTH: count_elements(r, r->values + s->a, r->lists + s->b); break;
      case EMPTY: r->lists[s->a].count = 0; break;
      case LIST: reason = copy_list(r->lists + s->a, r->lists + s->b); break;
      case VALUE: reason = copy_value(r, r->values + s->a, r->values + s->b); break;
      case UNLESS:
        if (!is_single(r->values + s->a)) return WRONG_INDEX;
        if (!*r->values[s->a].elements) place = s->b - 1;
        break;
      default: place = s->b - 1;
    }
  }
  return reason;
}

/// Takes back what a round has done to lists.
static void take_back(rounds_t *r) {
  while (r->num_done) {
    const done_t *d = r->done + --r->num_done;
    if (d->was_erased) put(r->lists + d->list, d->position, d->item);
    else take_out(r->lists + d->list, d->position);
  }
}

/// Looks whether what is stacked has the shape of what other rounds have given, and whether there is room for it. An element of a
/// list may have more dimensions than there are places for.
static dim_t check_rows(rounds_t *r) {
  dim_t reason = ENDED;
  for (stacked_t *s = r->stacks; s < r->stacks + r->num_stacks; s++) {
    const value_t *v = r->values + s->value;
    if (v->rank > MAX_RANK) return OTHER_EXTENTS;
    if (s->rank < 0) {
      s->rank = v->rank;
      for (dim_t i = 0; i < v->rank; i++) s->extents[i] = v->extents[i];
    }
    if (s->rank != v->rank) return OTHER_ROWS;
    for (dim_t i = 0; i < v->rank; i++)
      if (s->extents[i] != v->extents[i]) return OTHER_ROWS;
    s->needed = size_of(v);
    if (s->used + s->needed > s->room) reason = NO_ROOM;
  }
  return reason;
}

/// Puts what is stacked after what other rounds have given, and makes what the next round begins with.
static void turn(rounds_t *r) {
  for (stacked_t *s = r->stacks; s < r->stacks + r->num_stacks; s++) {
    if (s->needed) __builtin_memcpy(s->memory + s->used, r->values[s->value].elements, s->needed);
    s->used += s->needed;
  }
  if (r->keep >= 0) r->goes_on = *r->values[r->keep].elements != 0;
  for (const carried_t *c = r->carried; c < r->carried + r->num_carried; c++) {
    value_t *to = r->values + c->state;
    const value_t *from = r->values + c->given;
    to->elements = from->elements;
    to->extents = from->extents;
    to->rank = from->rank;
    to->kept = from->kept;
  }
  for (const carried_t *c = r->swapped; c < r->swapped + r->num_swapped; c++) {
    list_t list = r->lists[c->state];
    r->lists[c->state] = r->lists[c->given];
    r->lists[c->given] = list;
  }
  for (const scanned_t *s = r->scanned; s < r->scanned + r->num_scanned; s++) r->values[s->value].elements += s->stride;
  r->parity ^= 1;
  r->round++;
}

/// Runs rounds until one of the reasons is met; only PAUSED and ENDED are after a whole round.
dim_t libjit_rounds_run(rounds_t *r) {
  for (dim_t left = r->patience; left > 0; left--) {
    char *next = r->next;
    dim_t num_put = r->num_put;
    *r->number = r->round;
    r->num_done = 0;
    dim_t reason = run_steps(r);
    if (reason == ENDED && r->keep >= 0 && !is_single(r->values + r->keep)) reason = WRONG_INDEX;
    if (reason == ENDED) reason = check_rows(r);
    if (reason != ENDED) {
      take_back(r);
      r->next = next;
      r->num_put = num_put;
      return reason;
    }
    turn(r);
    if (!r->goes_on || r->round >= r->limit) return ENDED;
  }
  return PAUSED;
}
