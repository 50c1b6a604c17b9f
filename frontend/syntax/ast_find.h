/* The name at a place of a file, and what it is a name of: for editors. */
#ifndef SHARDC_AST_FIND_H
#define SHARDC_AST_FIND_H
#include "ast.h"

typedef enum AstRole {
  ROLE_NONE,
  ROLE_DIM,
  ROLE_LAYER,     /* of `sub` and `stack` */
  ROLE_MODEL,     /* after `for` and `of` */
  ROLE_CALL,      /* a function, a sub or a stack */
  ROLE_VALUE,     /* of a body, or a constant */
  ROLE_OPTION,    /* name = value of a call, a sub or a stack */
  ROLE_ATTRIBUTE, /* after `@` */
  ROLE_WORD,      /* that begins a line of a settings block */
  ROLE_KEY,       /* key = value of such a line */
  ROLE_CHOICE,    /* a bare word of such a line, or a key's value */
  ROLE_FILE,      /* of `use` */
  ROLE_ITEM       /* what an item declares */
} AstRole;

typedef struct AstFound {
  AstRole role;
  AstName name;
  const AstItem *item;
  const AstStmt *stmt;    /* NULL: not in a body */
  const AstSetting *line; /* NULL: not in a settings block */
  Str of;                 /* OPTION: what is called; CHOICE: the key, NULL: none */
} AstFound;

AstFound ast_find(const AstFile *file, uint32_t offset); /* role NONE: no name */
#endif
