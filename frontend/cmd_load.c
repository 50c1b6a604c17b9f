/* Files in and out, and from a file to a module: a `.shard` file is lowered, dumped IR is read and
 * goes on where it was. */
#include "cmd.h"
#include "codegen/codegen.h"
#include "frontend/lower.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static FILE *open_input(const char *path) {
  struct stat info;
  FILE *f = fopen(path, "rb");
  if (f && !fstat(fileno(f), &info) && !S_ISDIR(info.st_mode)) return f;
  if (f) errno = EISDIR, fclose(f);
  return NULL;
}

char *file_read(Ctx *c, const char *path, size_t *n) {
  FILE *f = open_input(path);
  VEC(char) text = {0};
  char part[4096];
  if (!f) return fprintf(stderr, "shardc: cannot read `%s`: %s\n", path, strerror(errno)), NULL;
  for (size_t got; (got = fread(part, 1, sizeof part, f)) > 0;)
    for (size_t i = 0; i < got; i++) vec_push(c->arena, text, part[i]);
  bool failed = ferror(f);
  fclose(f);
  if (failed) return fprintf(stderr, "shardc: cannot read `%s`\n", path), NULL;
  *n = text.n;
  vec_push(c->arena, text, 0);
  return text.at;
}

FileKind file_kind(const char *path) {
  static const char mark[] = "shardc-ir ";
  char head[sizeof mark] = "";
  FILE *f = open_input(path);
  if (!f) return FILE_MISSING;
  size_t got = fread(head, 1, sizeof mark - 1, f);
  fclose(f);
  return got == sizeof mark - 1 && !strcmp(head, mark) ? FILE_IR : FILE_SHARD;
}

static Module *load_shard(Cli *o, const char *path) {
  LowerOptions lower = {.path = path, .model = o->value[OPT_MODEL], .train = o->value[OPT_TRAIN]};
  lower.plan = o->value[OPT_PLAN];
  lower.dims = o->dims.at, lower.ndims = o->dims.n;
  lower.sets = o->sets.at, lower.nsets = o->sets.n;
  return lower_program(o->c, &lower);
}

static Module *load_ir(Cli *o, const char *path) {
  size_t n;
  const char *text = file_read(o->c, path, &n);
  return text ? ir_parse(o->c, path, text, n) : NULL;
}

/* The target is fixed once: what a dump says already is not asked again. */
static Exit describe_target(Cli *o, Module *m) {
  const char *name = o->value[OPT_TARGET];
  if (!name && module_setting(m, "target.name", NULL)) return EXIT_FINE;
  if (!name) name = module_setting(m, "machine.node.arch", "native");
  const Target *t = target_find(name);
  if (!t) return cli_usage("no target `%s`; targets: native, x86_64_v3, x86_64_v4", name);
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  int workers = (int)module_number(m, "machine.node.cores", cores > 0 ? (double)cores : 1);
  target_describe(m, t, workers);
  return EXIT_FINE;
}

Exit load_module(Cli *o, Module **m) {
  const char *path = o->operands.at[0];
  FileKind kind = file_kind(path);
  *m = NULL;
  if (kind == FILE_MISSING) {
    fprintf(stderr, "shardc: cannot read `%s`: %s\n", path, strerror(errno));
    return EXIT_ENVIRONMENT;
  }
  if (kind == FILE_IR &&
      (o->dims.n || o->sets.n || o->value[OPT_MODEL] || o->value[OPT_TRAIN] || o->value[OPT_PLAN]))
    return cli_usage("`%s` is IR: its model, plan, sizes and settings are fixed already", path);
  *m = kind == FILE_IR ? load_ir(o, path) : load_shard(o, path);
  if (!*m || diag_errors(o->c->diag))
    return diag_errors(o->c->diag) ? EXIT_INPUT : EXIT_ENVIRONMENT;
  return describe_target(o, *m);
}

/* ---- out ---- */

static Exit cannot_write(const char *path) {
  fprintf(stderr, "shardc: cannot write `%s`: %s\n", path, strerror(errno));
  return EXIT_ENVIRONMENT;
}

Exit write_text(const char *path, const char *text, size_t n) {
  char *temporary;
  if (!strcmp(path, "-"))
    return fwrite(text, 1, n, stdout) == n ? EXIT_FINE : cannot_write("stdout");
  if (asprintf(&temporary, "%s.%ld.part", path, (long)getpid()) < 0) return cannot_write(path);
  FILE *f = fopen(temporary, "wb");
  bool good = f && fwrite(text, 1, n, f) == n;
  if (f) good = !fclose(f) && good;
  good = good && !rename(temporary, path);
  Exit e = good ? EXIT_FINE : cannot_write(path);
  if (!good && f) unlink(temporary);
  free(temporary);
  return e;
}

bool make_folder(const char *path) {
  struct stat info;
  if (!mkdir(path, 0777) || (!stat(path, &info) && S_ISDIR(info.st_mode))) return true;
  fprintf(stderr, "shardc: cannot make the folder `%s`: %s\n", path, strerror(errno));
  return false;
}

Exit report(Cli *o, Exit otherwise) {
  diag_print(o->c->diag, stderr, o->format, o->colour);
  if (otherwise == EXIT_USAGE || otherwise == EXIT_ENVIRONMENT) return otherwise;
  return diag_errors(o->c->diag) ? EXIT_INPUT : otherwise;
}
