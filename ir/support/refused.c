/* Files and folders that the system refuses: the reason, and for what is written an edit. Must not:
   touch a file. */
#include "refused.h"
#include <errno.h>
#include <string.h>

static const struct Refusal {
  int why;
  const char *help;
} refusals[] = {
    {ENOENT, "its folder does not exist: make it, or name a file in another one"},
    {ENOSPC, "free some space on that disk, or write to another one (temporary files: "
             "TMPDIR=FOLDER)"},
    {EDQUOT, "free some space, or write to another disk (temporary files: TMPDIR=FOLDER)"},
    {EISDIR, "it is a folder: name a file in it"},
    {ENOTDIR, "a part of that path is a file: name a folder in its place"},
    {EACCES, "name a file in a folder that you may write to"},
    {EROFS, "that disk is read-only: name a file on another one"}};

static const struct RefusedWords {
  const char *what;
  bool written;
} words[REFUSED_USES] = {[CANNOT_READ] = {"read", false},
                         [CANNOT_WRITE] = {"write", true},
                         [CANNOT_MAKE_TEMPORARY] = {"make a temporary folder", true},
                         [CANNOT_START] = {"start", false}};

Report *diag_refused(Diag *diag, const char *code, RefusedUse use, const char *path) {
  int why = errno ? errno : ENOENT;
  bool written = words[use].written;
  Report *r =
      diag_at(diag, code, (Span){0}, "cannot %s `%s`: %s", words[use].what, path, strerror(why));
  if (use == CANNOT_MAKE_TEMPORARY) {
    diag_help(r, "`TMPDIR=FOLDER` names another folder for temporary files");
    return r;
  }
  for (size_t i = 0; written && i < sizeof refusals / sizeof *refusals; i++)
    if (refusals[i].why == why) diag_help(r, "%s", refusals[i].help);
  return r;
}
