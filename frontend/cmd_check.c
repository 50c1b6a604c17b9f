/* `shardc check`: everything that can be known without making anything; as messages and one line
   per model, or as one JSON object on stdout (--json). */
#include "cmd.h"
#include "codegen/codegen.h"
#include "frontend/lower.h"
#include <stdlib.h>

typedef struct Found { /* over all files, for --json */
  FILE *models, *messages;
  bool any_model, any_message;
} Found;

/* 124439808 -> 124,439,808 */
static const char *grouped(Ctx *c, long long n) {
  if (n < 1000) return arena_printf(c->arena, "%lld", n);
  return arena_printf(c->arena, "%s,%03lld", grouped(c, n / 1000), n % 1000);
}

static void say_model(const Cli *o, const CheckedModel *m) {
  const char *count = m->counted ? grouped(o->c, (long long)m->parameters) : "an open number of";
  printf("%s: %s parameters\n", m->name, count);
}

static void list_model(Found *f, const CheckedModel *m) {
  fputs(f->any_model ? ",{\"name\":" : "{\"name\":", f->models);
  json_put_string(f->models, m->name);
  fputs(",\"parameters\":", f->models);
  if (m->counted) fprintf(f->models, "%lld}", (long long)m->parameters);
  else fputs("null}", f->models);
  f->any_model = true;
}

static Exit check_shard(Cli *o, const char *path, Found *f) {
  CheckResult r = {0};
  if (!check_program(o->c, path, &r)) return EXIT_ENVIRONMENT;
  bool said = !f && !diag_errors(o->c->diag) && !o->value[OPT_QUIET];
  for (uint32_t i = 0; i < r.models.n; i++)
    if (f) list_model(f, &r.models.at[i]);
    else if (said) say_model(o, &r.models.at[i]);
  return EXIT_FINE;
}

static Exit check_file(Cli *o, const char *path, Found *f) {
  FileKind kind = file_kind(o->c, path);
  size_t n = 0;
  const char *text = kind == FILE_SHARD ? "" : file_read(o->c, path, &n);
  if (!text) return EXIT_ENVIRONMENT;
  if (kind == FILE_SHARD) return check_shard(o, path, f);
  Module *m = ir_parse(o->c, path, text, n);
  return m && target_complete(m) && ir_verify(m) ? EXIT_FINE : EXIT_INPUT;
}

/* Every file is checked for itself: what one declares means nothing to the next. */
static Exit check_all(Cli *o, Found *f) {
  Exit worst = EXIT_FINE;
  for (uint32_t i = 0; i < o->operands.n; i++) {
    Cli one = *o;
    one.c = ctx_new();
    Exit e = check_file(&one, o->operands.at[i], f);
    e = f ? exit_of(&one, e) : report(&one, e);
    if (f) f->any_message |= diag_print_list(one.c->diag, f->messages, f->any_message);
    if (e > worst) worst = e;
    ctx_free(one.c);
  }
  return worst;
}

static Exit check_json(Cli *o) {
  char *models = NULL, *messages = NULL;
  size_t n;
  Found f = {.models = open_memstream(&models, &n), .messages = open_memstream(&messages, &n)};
  if (!f.models || !f.messages) bug("no memory");
  Exit e = check_all(o, &f);
  fclose(f.models), fclose(f.messages);
  printf("{\"schema\":1,\"models\":[%s],\"diagnostics\":[%s]}\n", models, messages);
  free(models), free(messages);
  return e;
}

Exit cmd_check(Cli *o) { return o->value[OPT_JSON] ? check_json(o) : check_all(o, NULL); }
