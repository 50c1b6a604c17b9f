/* Words and name patterns that the printer, the parser and the verifier share. */
#ifndef SHARDC_WORD_PATTERNS_H
#define SHARDC_WORD_PATTERNS_H
#include "ir.h"

extern const char *const text_fn_kinds[3];     /* by FnKind */
extern const char *const text_global_kinds[5]; /* by GlobalKind */

bool text_is_start(char c);       /* first letter of every name */
bool text_is_word_char(char c);   /* dims, attributes, op names */
bool text_is_symbol_char(char c); /* functions and globals, after the @ */
bool text_is_key_char(
    char c); /* settings, model and pass names, as far as they go without quotes */
bool text_is_word(const char *s);
bool text_is_symbol(const char *s);
bool text_is_key(const char *s);
bool text_lists(const char *list, const char *word); /* is it one of "data, node"? */

/* The name of a function in generated code: h.forward -> h_forward, of 150 characters at most. The
   only place where it is made. */
char *text_symbol(Arena *a, const char *name);
/* A function before number i whose generated names meet those of function i; NULL: none. */
const Fn *symbol_twin(const Module *m, uint32_t i);
#endif
