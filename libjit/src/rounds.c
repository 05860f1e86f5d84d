/// The rounds of a loop whose values change their shapes, for JIT code: one function is called again and again, with results of
/// the round before, until the loop ends or needs what only the caller has: more memory, or code for other extents.
///
/// A bundle has no such loops: nothing bounds what they need. The layouts are those of glowpy/backends/cpu/rounds.py.
#include "libjit.h"

typedef int (*entry_t)(const void *constants, void **table, void *activations);

/// Why the rounds stop.
enum { ENDED, PAUSED, OTHER_EXTENTS, NO_ROOM, WRONG_INDEX, OTHER_ROWS, FAILED };

/// A dimension is computed by steps over a stack: those from its place on, up to END.
enum { END, CONSTANT, EXTENT, ADD, MULTIPLY, DIVIDE, LEAST, GREATEST };
#define DEPTH 16

typedef struct {
  dim_t operation, number;
} step_t;

/// What a round takes: its pointer's place in the table; the result of the round before that it is, or -1; how many bytes it is
/// from what the next round takes; and its extents, of those that a round begins with.
typedef struct {
  const char *elements;
  dim_t slot, maker, stride, rank, first, bytes;
} taken_t;

/// What a round gives, to one of two memories, for it reads the other one: with room for so many bytes, of which it needs some.
/// It may be in the place of what the round takes, which is copied there.
typedef struct {
  char *memories[2];
  dim_t rooms[2];
  dim_t slot, replaced, rank, first, element, room, needed;
} given_t;

/// Something of each round, one after the other: what it gives, or takes if the source is below 0: -1 is the first such one. The
/// elements of a list are of any extents, which are kept as well.
typedef struct {
  char *memory;
  dim_t source, room, used, is_list;
  dim_t *extents;
  dim_t num_extents, most_extents;
} stacked_t;

typedef struct {
  const char *elements;
  const dim_t *extents;
  dim_t rank, bytes;
} row_t;

/// An extent, of those that a round begins with, and what it has to be, or decides.
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
  taken_t *takes;
  dim_t num_takes;
  given_t *gives;
  dim_t num_gives;
  stacked_t *stacks;
  dim_t num_stacks;
  /// Extents that say what a symbol is, and those that have to be what a dimension is.
  const known_t *saying;
  dim_t num_saying;
  const known_t *checked;
  dim_t num_checked;
  const step_t *steps;
  /// The extents of what a round takes, of what it gives, as dimensions and as numbers, and of what is stacked, -1 until a
  /// round says it.
  dim_t *before;
  const dim_t *dims;
  dim_t *after, *rows;
  /// Results that say whether an index led out of range.
  const dim_t *tests;
  dim_t num_tests;
  /// What a round reads its number from, and where it is told the addresses of arrays.
  int64_t *number;
  void **table;
  dim_t num_symbols;
  /// The result that says whether there is another round, or -1.
  dim_t keep;
  dim_t round, limit, patience, parity, goes_on;
} rounds_t;

// Python writes these as words of dim_t, as many of each as _WORDS and _TABLES say there; a unit test compares the numbers.
_Static_assert(sizeof(void *) == sizeof(dim_t), "a pointer is a word");
_Static_assert(sizeof(step_t) == 2 * sizeof(dim_t), "steps");
_Static_assert(sizeof(taken_t) == 7 * sizeof(dim_t), "takes");
_Static_assert(sizeof(given_t) == 11 * sizeof(dim_t), "gives");
_Static_assert(sizeof(stacked_t) == 8 * sizeof(dim_t), "stacks");
_Static_assert(sizeof(known_t) == 2 * sizeof(dim_t), "saying, checked");
_Static_assert(sizeof(rounds_t) == 34 * sizeof(dim_t), "words");
_Static_assert(sizeof(int64_t) <= 2 * sizeof(dim_t), "the number of a round has two words");

INLINE dim_t floored(dim_t dividend, dim_t divisor) {
  dim_t quotient = dividend / divisor;
  return quotient - (dividend % divisor < 0);
}

/// What a dimension is. Divisors are positive.
static dim_t number_of(const step_t *step, const dim_t *symbols) {
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

/// Finds out what symbols are. False if the code is not for these extents.
static bool is_for(rounds_t *r) {
  for (dim_t i = 0; i < r->num_saying; i++) r->symbols[r->saying[i].number] = r->before[r->saying[i].place];
  for (dim_t i = 0; i < r->num_found; i++) r->symbols[r->found[i]] = r->lows[r->found[i]];
  for (dim_t i = 0; i < r->num_symbols; i++)
    if (r->symbols[i] < r->lows[i] || r->symbols[i] > r->highs[i]) return false;
  for (dim_t i = 0; i < r->num_checked; i++)
    if (number_of(r->steps + r->checked[i].number, r->symbols) != r->before[r->checked[i].place]) return false;
  return true;
}

/// What a round adds to a stack. That of a result is known once the round has run.
static row_t row_of(const rounds_t *r, const stacked_t *s) {
  row_t row;
  if (s->source < 0) {
    const taken_t *t = r->takes + (-1 - s->source);
    row = (row_t){t->elements, r->before + t->first, t->rank, t->bytes};
  } else {
    const given_t *g = r->gives + s->source;
    row = (row_t){g->memories[r->parity], r->after + g->first, g->rank, g->element};
  }
  for (dim_t i = 0; i < row.rank; i++) row.bytes *= row.extents[i];
  return row;
}

/// Whether there is room for all that a round gives, and has stacked.
static bool has_room(rounds_t *r) {
  bool enough = true;
  for (given_t *g = r->gives; g < r->gives + r->num_gives; g++) {
    g->needed = number_of(r->steps + g->room, r->symbols);
    enough &= g->needed <= g->rooms[r->parity];
  }
  for (stacked_t *s = r->stacks; s < r->stacks + r->num_stacks; s++) {
    bool is_given = s->source >= 0;
    dim_t needed = is_given ? r->gives[s->source].needed : row_of(r, s).bytes;
    dim_t rank = is_given ? r->gives[s->source].rank : r->takes[-1 - s->source].rank;
    enough &= s->used + needed <= s->room && (!s->is_list || s->num_extents + rank <= s->most_extents);
  }
  return enough;
}

/// Fills the table.
static void bind(rounds_t *r) {
  for (taken_t *t = r->takes; t < r->takes + r->num_takes; t++) {
    r->table[t->slot] = (void *)t->elements;
    dim_t bytes = t->bytes;
    for (dim_t i = 0; i < t->rank; i++) bytes *= r->before[t->first + i];
    for (given_t *g = r->gives; g < r->gives + r->num_gives; g++)
      if (g->replaced == t - r->takes && bytes) __builtin_memcpy(g->memories[r->parity], t->elements, bytes);
  }
  for (given_t *g = r->gives; g < r->gives + r->num_gives; g++) r->table[g->slot] = g->memories[r->parity];
}

/// Puts what is stacked after what other rounds have given. False if it has another shape, and is not of a list.
static bool stack_rows(rounds_t *r) {
  for (stacked_t *s = r->stacks; s < r->stacks + r->num_stacks; s++) {
    row_t row = row_of(r, s);
    for (dim_t i = 0; i < row.rank; i++) {
      if (s->is_list) {
        s->extents[s->num_extents++] = row.extents[i];
        continue;
      }
      dim_t *expected = r->rows + r->gives[s->source].first + i;
      if (*expected < 0) *expected = row.extents[i];
      if (*expected != row.extents[i]) return false;
    }
    if (row.bytes) __builtin_memcpy(s->memory + s->used, row.elements, row.bytes);
    s->used += row.bytes;
  }
  return true;
}

/// Makes what the next round takes of what this one has given.
static void turn(rounds_t *r) {
  for (taken_t *t = r->takes; t < r->takes + r->num_takes; t++) {
    t->elements += t->stride;
    if (t->maker < 0) continue;
    const given_t *g = r->gives + t->maker;
    t->elements = g->memories[r->parity];
    for (dim_t i = 0; i < t->rank; i++) r->before[t->first + i] = r->after[g->first + i];
  }
  if (r->keep >= 0) r->goes_on = *r->gives[r->keep].memories[r->parity] != 0;
  r->parity ^= 1;
  r->round++;
}

/// Runs rounds until one of the reasons is met; only PAUSED and ENDED are after a whole round.
dim_t libjit_rounds_run(rounds_t *r) {
  for (dim_t left = r->patience; left > 0; left--) {
    if (!is_for(r)) return OTHER_EXTENTS;
    if (!has_room(r)) return NO_ROOM;
    bind(r);
    *r->number = r->round;
    if (r->entry(r->constants, r->table, r->activations)) return FAILED;
    for (dim_t i = 0; i < r->num_tests; i++)
      if (*(const int64_t *)(const void *)r->gives[r->tests[i]].memories[r->parity]) return WRONG_INDEX;
    for (dim_t i = 0; i < r->num_gives; i++)
      for (dim_t k = r->gives[i].first; k < r->gives[i].first + r->gives[i].rank; k++)
        r->after[k] = number_of(r->steps + r->dims[k], r->symbols);
    if (!stack_rows(r)) return OTHER_ROWS;
    turn(r);
    if (!r->goes_on || r->round >= r->limit) return ENDED;
  }
  return PAUSED;
}
