/* The host program: the module after `memory` as C that a person can read.

   One function per body and entry, constant tables around them. The text does no arithmetic on
   tensors: it calls what rt_abi.def lists, with addresses that are literals, or base + i * stride
   in loops. Nothing in it depends on the machine or the time of compilation: the same module gives
   the same text. */
#include "host.h"
#include "ir/text.h"
#include <stdio.h>

void host_put(HostWriter *h, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  size_t n = (size_t)vsnprintf(NULL, 0, format, args);
  va_end(args);
  if (h->n + n + 1 > h->cap) {
    h->cap = (h->n + n + 1) * 2;
    char *grown = arena_alloc(h->m->arena, h->cap);
    if (h->n) memcpy(grown, h->text, h->n);
    h->text = grown;
  }
  vsnprintf(h->text + h->n, n + 1, format, again);
  va_end(again);
  h->n += n;
}

/* Octal escapes always have three digits, so that no digit of the text can join them; two question
 * marks may begin a trigraph. */
void host_string(HostWriter *h, const char *s) {
  host_put(h, "\"");
  for (; *s; s++) {
    unsigned char c = (unsigned char)*s;
    if (c == '\n' && s[1]) host_put(h, "\\n\"\n    \"");
    else if (c == '\n') host_put(h, "\\n");
    else if (c == '"' || c == '\\' || c == '?') host_put(h, "\\%c", c);
    else if (c < 32 || c > 126) host_put(h, "\\%03o", c);
    else host_put(h, "%c", c);
  }
  host_put(h, "\"");
}

/* Nothing in it can end the comment, begin another one or leave the line. */
void host_comment(HostWriter *h, const char *s) {
  for (char last = 0; *s; last = *s++) {
    unsigned char c = (unsigned char)*s;
    bool ends = (c == '/' && last == '*') || (c == '*' && last == '/');
    if (ends) host_put(h, " ");
    host_put(h, "%c", c < 32 || c > 126 || c == '\\' ? '?' : c);
  }
}

static const char *const calls[] = {
#define RT_CALL(result, name, arguments, what) [CALL_##name] = #name,
#include "runtime/rt_abi.def"
#undef RT_CALL
};

void host_call(HostWriter *h, const char *indent, HostCall c) {
  host_put(h, "%s%s(rt, ", indent, calls[c]);
}

const char *host_c_name(HostWriter *h, Str name) { return text_symbol(h->m->arena, name); }

const char *host_source(HostWriter *h, Loc l) {
  if (!l.file || l.file > h->m->sources.n) return "";
  const char *name = h->m->sources.at[l.file - 1].name, *slash = strrchr(name, '/');
  return arena_printf(h->m->arena, "%s:%u", slash ? slash + 1 : name, l.line);
}

char *host_write(Module *m) {
  HostWriter h = {.m = m, .tiers = module_tiers(m)};
  host_put(&h, "/* The host program of model ");
  host_comment(&h, m->model);
  host_put(&h, ", written by shardc. Kernels are compiled apart; addresses are final. */\n");
  host_put(&h, "#include \"rt.h\"\n");
  host_kernels(&h);
  if (host_count_collectives(m))
    host_put(&h, "\nstatic const rt_collective collectives[%u];\n", host_count_collectives(m));
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (m->fns.at[i]->kind != FN_KERNEL) host_function(&h, m->fns.at[i]);
  host_tables(&h);
  return h.text;
}
