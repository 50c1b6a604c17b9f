/* Messages about files and folders that the system does not let a command read or write. */
#ifndef SHARDC_REFUSED_H
#define SHARDC_REFUSED_H
#include "diag.h"

typedef enum RefusedUse {
  CANNOT_READ,
  CANNOT_WRITE,
  CANNOT_MAKE_TEMPORARY,
  CANNOT_START,
  REFUSED_USES
} RefusedUse;

/* By errno: "cannot write `path`: ..", and what helps. */
Report *diag_refused(Diag *diag, const char *code, RefusedUse use, const char *path);
#endif
