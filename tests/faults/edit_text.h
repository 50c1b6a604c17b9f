/* Single edits of a dump's text: a number, a word, a clause, a line. Which one follows from a seed,
   or from the number's place. */
#ifndef SHARDC_TESTS_EDIT_TEXT_H
#define SHARDC_TESTS_EDIT_TEXT_H
#include "ir/ir.h"

enum { EDIT_KEY = 24, NUMBER_EDITS = 20 };

typedef struct Text {
  char *at; /* NULL: there is nothing of that kind to edit */
  size_t n;
} Text;

typedef struct Piece { /* of a text, and what it is called in the tally */
  size_t from, to;
  char key[EDIT_KEY];
} Piece;

typedef VEC(Piece) Pieces;

Text edit_by_seed(Arena *a, const char *text, uint64_t seed, Piece *edited);
/* Edits a start, a wait, a message or a ring. */
Text edit_flight(Arena *a, const char *text, uint64_t seed, Piece *edited);
Pieces edit_numbers(Arena *a, const char *text); /* all that can be replaced */
/* Parts that can be left out: lines of the module, `name = ..` of attributes, `at(..)` and the like
   of results, whole `{..}`. */
Pieces edit_clauses(Arena *a, const char *text);
Text edit_without(Arena *a, const char *text, const Piece *clause);
/* how: 0 .. NUMBER_EDITS - 1 */
Text edit_number_at(Arena *a, const char *text, const Piece *number, uint64_t how);
#endif
