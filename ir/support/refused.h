/* Messages about files and folders that the system does not let a command read or write. */
#ifndef SHARDC_REFUSED_H
#define SHARDC_REFUSED_H
#include "diag.h"

/* By errno: "cannot write `path`: ..", and what helps. */
void diag_refused(Diag *diag, const char *code, const char *what, const char *path);
#endif
