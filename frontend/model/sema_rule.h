/* Rules of states and of trained parameters: lines `update` and `project` (sema_rule.c). */
#ifndef SHARDC_SEMA_RULE_H
#define SHARDC_SEMA_RULE_H
#include "sema.h"

#define RULE_LINES (1u << STMT_UPDATE | 1u << STMT_PROJECT)
const char *rule_word(const AstStmt *stmt);               /* its keyword */
const NameMap *rule_names(Eval *e, const AstStmts *body); /* for Eval.updated */
void rule_declare(Eval *e, Param *param);                 /* is it a state, or projected? */
void rule_meet(Eval *e, const Env *env, const AstStmt *stmt);
void rules_leave(Eval *e, Str dim, RuleValues *out); /* the rounds of a stack end */
void rules_close(Eval *e);
bool rule_refuses(Eval *e, Span layer); /* a call, with a message */
bool rule_draws(Eval *e, Span call);    /* `project` with random numbers: a message */
/* False: `project` names a dim of its stacks; with a message. */
bool rule_of_layer(Eval *e, const Dims *dims, Span at);
Val rule_view(const Eval *e, const Val *v); /* a parameter: as a rule sees it */
/* The first line that is a rule of this kind, or NULL. */
const AstStmt *rule_line(const Eval *e, AstStmtKind kind);
#endif
