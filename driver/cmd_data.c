/* `shardc data`: looks at files of tokens and arrays (info), writes tokens in another format
   (convert), and makes tokens of text (tokenize). All reading is the runtime's, so what this shows
   is what an executable will see. Must not: change the files that it reads. */
#include "cmd_shards.h"
#include "ir/support/num.h"
#include "runtime/data/data_file.h"
#include "runtime/base/file.h"
#include "runtime/text/tokenizer.h"
#include <stdlib.h>
#include <unistd.h>

/* The runtime's fault as a diagnostic. */
static Exit data_fault(Cli *o, const Fault *f) {
  const char *code = f->code == 201 ? "E0001" : "E1401";
  Report *r = *f->where ? diag_at(o->c->diag, code, (Span){0}, "%s: %s", f->where, f->what)
                        : diag_at(o->c->diag, code, (Span){0}, "%s", f->what);
  if (f->position >= 0) diag_fact(r, "at %s %lld", f->unit, (long long)f->position);
  if (*f->help) diag_help(r, "%s", f->help);
  return EXIT_INPUT;
}

typedef VEC(DataFile) DataParts;

static Exit open_parts(Cli *o, DataParts *out) {
  Fault f = {0};
  Exit e = EXIT_FINE;
  for (uint32_t i = 1; i < o->operands.n && e == EXIT_FINE; i++) {
    DataFile *parts = NULL;
    int n;
    if (!rt_parts_open(o->operands.at[i], o->value[OPT_FROM], &parts, &n, &f))
      e = data_fault(o, &f);
    for (int k = 0; k < n; k++) vec_push(o->c->arena, *out, parts[k]);
    free(parts);
  }
  return e;
}

static void close_parts(DataParts *p) {
  for (uint32_t i = 0; i < p->n; i++) rt_part_close(&p->at[i]);
}

static Exit open_tokenizer(Cli *o, Tokenizer **t) {
  Fault f = {0};
  *t = NULL;
  if (!o->value[OPT_TOKENIZER] || rt_tokenizer_open(o->value[OPT_TOKENIZER], t, NULL, &f))
    return EXIT_FINE;
  return data_fault(o, &f);
}

/* ---- info ---- */

typedef struct TokenRange {
  double low, high; /* exact for all that can be a token */
} TokenRange;

static TokenRange range_of(const Array *a) {
  TokenRange r = {0};
  for (int64_t i = 0; i < a->count; i++) {
    double v = rt_array_real(a, i);
    if (i == 0 || v < r.low) r.low = v;
    if (i == 0 || v > r.high) r.high = v;
  }
  return r;
}

static const char *number_type(Cli *o, const Array *a) {
  static const char *const kinds[] = {"u", "i", "f", "bool"};
  _Static_assert(COUNT_OF(kinds) == NUMBER_BOOL + 1, "a word per NumberKind");
  return a->kind == NUMBER_BOOL ? kinds[3]
                                : arena_printf(o->c->arena, "%s%d", kinds[a->kind], 8 * a->width);
}

static void say_part(Cli *o, const DataFile *p) {
  const Array *a = &p->array;
  TokenRange r = range_of(a);
  printf("%s: %s, %s%s, %lld numbers", p->path, a->format, number_type(o, a),
         a->big ? " big-endian" : "", (long long)a->count);
  for (int i = 0; i < a->rank && a->rank > 1; i++)
    printf("%s%lld", i ? " x " : ", shape ", (long long)a->size[i]);
  if (a->count) printf(", %.10g to %.10g", r.low, r.high);
  if (a->documents > 1)
    printf(", %lld sequences, %lld documents", (long long)a->sequences,
           (long long)a->documents - 1);
  putchar('\n');
}

static void list_part(Cli *o, const DataFile *p, bool first) {
  const Array *a = &p->array;
  TokenRange r = range_of(a);
  fputs(first ? "{\"path\":" : ",{\"path\":", stdout);
  json_put_string(stdout, p->path);
  printf(",\"format\":\"%s\",\"type\":\"%s\",\"numbers\":%lld,\"shape\":[", a->format,
         number_type(o, a), (long long)a->count);
  for (int i = 0; i < a->rank; i++) printf("%s%lld", i ? "," : "", (long long)a->size[i]);
  printf("],\"documents\":%lld,\"least\":%.17g,\"most\":%.17g}",
         (long long)(a->documents > 1 ? a->documents - 1 : 0), r.low, r.high);
}

/* The first numbers; as text, if a tokenizer can spell them. */
static void say_head(const DataFile *p, const Tokenizer *t, int64_t n) {
  Spelling s = {0};
  if (n > p->array.count) n = p->array.count;
  for (int64_t i = 0; i < n; i++)
    if (t) rt_decode(t, (int32_t)rt_array_int(&p->array, i), &s, stdout);
    else printf(i ? " %.10g" : "%.10g", rt_array_real(&p->array, i));
  rt_decode_end(&s, stdout);
  putchar('\n');
}

static void say_total(const DataParts *p) {
  long long n = 0;
  for (uint32_t i = 0; i < p->n; i++) n += p->at[i].array.count;
  if (p->n > 1) printf("%u files, %lld numbers\n", p->n, n);
}

static Exit data_info(Cli *o) {
  DataParts p = {0};
  Tokenizer *t = NULL;
  const char *head = o->value[OPT_HEAD];
  Exit e = open_parts(o, &p);
  if (e == EXIT_FINE) e = open_tokenizer(o, &t);
  if (o->value[OPT_JSON] && e == EXIT_FINE) {
    fputs("{\"schema\":1,\"files\":[", stdout);
    for (uint32_t i = 0; i < p.n; i++) list_part(o, &p.at[i], i == 0);
    puts("]}");
  } else if (e == EXIT_FINE) {
    for (uint32_t i = 0; i < p.n; i++) {
      say_part(o, &p.at[i]);
      if (head) say_head(&p.at[i], t, strtoll(head, NULL, 10));
    }
    say_total(&p);
  }
  if (t) rt_tokenizer_close(t);
  close_parts(&p);
  return e;
}

/* ---- convert ---- */

static Exit check_tokens(Cli *o, const DataParts *p, int64_t *largest) {
  *largest = 0;
  for (uint32_t i = 0; i < p->n; i++) {
    const Array *a = &p->at[i].array;
    TokenRange r = range_of(a);
    bool tokens = a->kind != NUMBER_FLOAT && a->rank <= 1 && r.low >= 0 && r.high <= INT32_MAX;
    if ((int64_t)r.high > *largest && tokens) *largest = (int64_t)r.high;
    if (tokens) continue;
    Report *e = diag_at(o->c->diag, "E1402", (Span){0}, "%s holds no tokens", p->at[i].path);
    diag_fact(e, "tokens are one sequence of whole numbers from 0; these are %s, %.10g to %.10g%s",
              number_type(o, a), r.low, r.high, a->rank > 1 ? ", of several dimensions" : "");
    return EXIT_INPUT;
  }
  return EXIT_FINE;
}

static bool copy_part(Shards *s, const Array *a) {
  enum { BLOCK = 4096 };
  int32_t ids[BLOCK];
  int64_t document = 1, end = a->documents > 1 ? rt_array_document(a, 1) : a->count;
  for (int64_t i = 0, n; i < a->count; i += n) {
    while (end == i && document + 1 < a->documents) end = rt_array_document(a, ++document);
    n = end - i < BLOCK ? end - i : BLOCK;
    for (int64_t k = 0; k < n; k++) ids[k] = (int32_t)rt_array_int(a, i + k);
    if (!shards_add(s, ids, n)) return false;
    if (i + n == end) shards_end_document(s);
  }
  return true;
}

static void say_written(const Cli *o, const Shards *s) {
  if (o->value[OPT_QUIET]) return;
  if (s->files == 1) printf("%s: %lld tokens\n", s->name, (long long)s->total);
  else printf("%s and %d before it: %lld tokens\n", s->name, s->files - 1, (long long)s->total);
}

static Exit finish(Cli *o, Shards *s, bool ok) {
  ok = ok && shards_close(s);
  if (ok) say_written(o, s);
  else shards_remove(s);
  return ok ? EXIT_FINE : EXIT_ENVIRONMENT;
}

static Exit data_convert(Cli *o) {
  DataParts p = {0};
  Shards s = {0};
  int64_t largest;
  Exit e = open_parts(o, &p);
  if (e == EXIT_FINE) e = check_tokens(o, &p, &largest);
  if (e == EXIT_FINE) e = shards_open(&s, o, largest);
  if (e == EXIT_FINE) {
    bool ok = true;
    for (uint32_t i = 0; ok && i < p.n; i++) ok = copy_part(&s, &p.at[i].array);
    e = finish(o, &s, ok);
  }
  close_parts(&p);
  return e;
}

/* ---- tokenize ---- */

typedef struct DataWork {
  Cli *o;
  Tokenizer *t;
  Shards s;
  Ids ids;
  int32_t eot; /* -1: none */
  double said; /* when progress was shown, and how many bytes are done */
  int64_t done;
} DataWork;

static void progress(DataWork *w, const char *path, const Encoding *e, const Bytes *b) {
  double now = rt_now();
  if (w->said == 0) w->said = now;
  if (now - w->said < 1 || !isatty(STDERR_FILENO) || w->o->value[OPT_QUIET]) return;
  w->said = now;
  fprintf(stderr, "\r%s: %.0f%%, %lld tokens ", path,
          100.0 * (double)(e->at - b->at) / (double)b->n, (long long)w->s.total);
}

static bool tokenize_text(DataWork *w, const char *path, Bytes b) {
  enum { BLOCK = 1 << 16 };
  Encoding e;
  bool more = true;
  rt_encode_start(&e, w->t, b, w->o->value[OPT_SPECIAL] != NULL);
  while (more) {
    w->ids.n = 0;
    more = rt_encode_some(&e, w->t, BLOCK, &w->ids);
    if (!shards_add(&w->s, w->ids.at, w->ids.n)) return false;
    progress(w, path, &e, &b);
  }
  if (w->eot >= 0 && !shards_add(&w->s, &w->eot, 1)) return false;
  shards_end_document(&w->s);
  return true;
}

static bool tokenize_files(DataWork *w) {
  Fault f = {0};
  for (uint32_t i = 1; i < w->o->operands.n; i++) {
    Bytes b;
    const char *path = w->o->operands.at[i];
    if (!rt_map_file(path, 201, &b, &f)) return data_fault(w->o, &f), false;
    bool ok = tokenize_text(w, path, b);
    rt_unmap_file(&b);
    if (!ok) return false;
  }
  return true;
}

/* --eot: the number of a token, or its name. */
static Exit find_eot(DataWork *w) {
  const char *text = w->o->value[OPT_EOT];
  char *end = NULL;
  w->eot = -1;
  if (!text) return EXIT_FINE;
  long long id = strtoll(text, &end, 10);
  bool number = end > text && !*end;
  if (number && id >= 0 && id < rt_tokenizer_limit(w->t)) w->eot = (int32_t)id;
  if (!number) w->eot = rt_tokenizer_id(w->t, text);
  if (w->eot >= 0) return EXIT_FINE;
  return cli_usage("the tokenizer has no token `%s` for `--eot`", text);
}

static Exit data_tokenize(Cli *o) {
  DataWork w = {.o = o};
  if (!o->value[OPT_TOKENIZER]) return cli_usage("`shardc data tokenize` wants --tokenizer FILE");
  Exit e = open_tokenizer(o, &w.t);
  if (e == EXIT_FINE) e = find_eot(&w);
  if (e == EXIT_FINE) e = shards_open(&w.s, o, rt_tokenizer_limit(w.t) - 1);
  if (e == EXIT_FINE) e = finish(o, &w.s, tokenize_files(&w));
  if (w.t) rt_tokenizer_close(w.t);
  free(w.ids.at);
  return e;
}

/* ---- the command ---- */

static const struct {
  const char *name;
  Exit (*run)(Cli *o);
} verbs[] = {{"info", data_info}, {"convert", data_convert}, {"tokenize", data_tokenize}};

/* Options that belong to some of the three only. */
static const struct {
  CliOption id;
  const char *name, *verbs;
} bound[] = {{OPT_TO, "to", "convert tokenize"},
             {OPT_SHARD, "shard", "convert tokenize"},
             {OPT_FROM, "from", "info convert"},
             {OPT_OUTPUT, "output", "convert tokenize"},
             {OPT_EOT, "eot", "tokenize"},
             {OPT_SPECIAL, "special", "tokenize"},
             {OPT_HEAD, "head", "info"},
             {OPT_JSON, "json", "info"},
             {OPT_TOKENIZER, "tokenizer", "info tokenize"}};

Exit cmd_data(Cli *o) {
  const char *verb = o->operands.at[0];
  for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
    if (strcmp(verbs[i].name, verb)) continue;
    if (o->operands.n < 2) return cli_usage("`shardc data %s` wants FILE...", verb);
    for (size_t k = 0; k < sizeof bound / sizeof *bound; k++)
      if (o->value[bound[k].id] && !strstr(bound[k].verbs, verb))
        return cli_usage("`shardc data %s` has no option `--%s`", verb, bound[k].name);
    return cli_report(o, verbs[i].run(o));
  }
  return cli_usage("`shardc data` does info, convert or tokenize, not `%s`", verb);
}
