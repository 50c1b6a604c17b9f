/* Reproducers: while a pass runs, a signal handler can write the IR that the pass was given.

   The handler needs the note, and global state is not allowed, so the note is stored at the bottom
   of the alternate signal stack, whose address a handler can query. The alternate stack also
   serves if the pass overflowed its own. The handler only opens, writes and closes the file, and
   then calls the handler that was installed before it. */
#include "crash.h"
#include <fcntl.h>
#include <unistd.h>

enum { STACK_BYTES = 1 << 17, STATUS_BUG = 70 };

static const int crash_signals[CRASH_SIGNALS] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};

static bool write_all(int file, const char *text, size_t n) {
  while (n) {
    ssize_t put = write(file, text, n);
    if (put <= 0) return false;
    text += put, n -= (size_t)put;
  }
  return true;
}

bool crash_write(const CrashNote *note) {
  int file = open(note->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return false;
  bool good = write_all(file, note->text, note->n);
  return !close(file) && good;
}

static void restore(const CrashNote *note) {
  for (int i = 0; i < CRASH_SIGNALS; i++) sigaction(crash_signals[i], &note->before[i], NULL);
}

static void on_crash(int signal) {
  stack_t s;
  if (sigaltstack(NULL, &s) || !s.ss_sp || s.ss_flags & SS_DISABLE) _exit(STATUS_BUG);
  const CrashNote *note = s.ss_sp;
  if (note->text && crash_write(note)) write_all(STDERR_FILENO, note->said, strlen(note->said));
  restore(note);
  raise(signal);
  _exit(STATUS_BUG);
}

CrashNote *crash_begin(Arena *a) {
  CrashNote *note = arena_alloc(a, STACK_BYTES);
  *note = (CrashNote){.n = 0};
  sigaltstack(&(stack_t){.ss_sp = note, .ss_size = STACK_BYTES}, &note->stack_before);
  struct sigaction s = {.sa_handler = on_crash, .sa_flags = SA_ONSTACK | SA_NODEFER};
  for (int i = 0; i < CRASH_SIGNALS; i++) sigaction(crash_signals[i], &s, &note->before[i]);
  return note;
}

void crash_end(CrashNote *note) {
  restore(note);
  sigaltstack(&note->stack_before, NULL);
}

/* ---- diagnostic ---- */

/* The path as one word for a shell. */
static void put_quoted(char *out, size_t n, const char *path) {
  static const char plain[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+=:,@%-";
  size_t k = 0;
  if (path[strspn(path, plain)] == 0 && *path != '-') {
    snprintf(out, n, "%s", path);
    return;
  }
  out[k++] = '\'';
  for (; *path && k + 6 < n; path++)
    if (*path == '\'') memcpy(out + k, "'\\''", 4), k += 4;
    else out[k++] = *path;
  out[k++] = '\'', out[k] = 0;
}

static const char begin_command[] = "; this repeats it:\n  ";

void crash_note(CrashNote *note, const char *dir, const char *pass, const char *text, size_t n) {
  char word[800];
  bool here = !strcmp(dir, ".");
  note->text = NULL; /* nothing is written while the note changes */
  int length = snprintf(note->path, sizeof note->path, "%s%sshardc-crash-%s.ir", here ? "" : dir,
                        here ? "" : "/", pass);
  put_quoted(word, sizeof word, note->path);
  snprintf(note->said, sizeof note->said, "shardc: pass %s failed%sshardc opt -p %s %s\n", pass,
           begin_command, pass, word);
  note->n = n;
  note->text = (size_t)length < sizeof note->path ? text : NULL;
}

const char *crash_command(const CrashNote *note) {
  return strstr(note->said, begin_command) + sizeof begin_command - 1;
}
