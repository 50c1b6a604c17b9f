/* The host program: the module after `memory` as C that a person can read.

   One function per body and entry, constant tables around them. The text does no arithmetic on
   tensors: it calls what rt_abi.def lists, with addresses that are literals, or base + i * stride
   in loops. Nothing in it depends on the machine or the time of compilation: the same module gives
   the same text. */
#include "host.h"
#include "ir/word_patterns.h"
#include <stdio.h>

void host_put(HostWriter *writer, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  size_t n = (size_t)vsnprintf(NULL, 0, format, args);
  va_end(args);
  if (writer->n + n + 1 > writer->cap) {
    writer->cap = (writer->n + n + 1) * 2;
    char *grown = arena_alloc(writer->m->arena, writer->cap);
    if (writer->n) memcpy(grown, writer->text, writer->n);
    writer->text = grown;
  }
  vsnprintf(writer->text + writer->n, n + 1, format, again);
  va_end(again);
  writer->n += n;
}

/* Octal escapes always have three digits, so that no digit of the text can join them; two question
 * marks may begin a trigraph. */
void host_string(HostWriter *writer, const char *s) {
  host_put(writer, "\"");
  for (; *s; s++) {
    unsigned char c = (unsigned char)*s;
    if (c == '\n' && s[1]) host_put(writer, "\\n\"\n    \"");
    else if (c == '\n') host_put(writer, "\\n");
    else if (c == '"' || c == '\\' || c == '?') host_put(writer, "\\%c", c);
    else if (c < 32 || c > 126) host_put(writer, "\\%03o", c);
    else host_put(writer, "%c", c);
  }
  host_put(writer, "\"");
}

/* Nothing in it can end the comment, begin another one or leave the line. */
void host_comment(HostWriter *writer, const char *s) {
  for (char last = 0; *s; last = *s++) {
    unsigned char c = (unsigned char)*s;
    bool ends = (c == '/' && last == '*') || (c == '*' && last == '/');
    if (ends) host_put(writer, " ");
    host_put(writer, "%c", c < 32 || c > 126 || c == '\\' ? '?' : c);
  }
}

static const char *const calls[] = {
#define RT_CALL(result, name, arguments, what) [CALL_##name] = #name,
#include "runtime/rt_abi.def"
#undef RT_CALL
};

void host_call(HostWriter *writer, const char *indent, HostCall c) {
  host_put(writer, "%s%s(rt, ", indent, calls[c]);
}

const char *host_c_name(HostWriter *writer, Str name) {
  return text_symbol(writer->m->arena, name);
}

const char *host_source(HostWriter *writer, Loc l) {
  if (!l.file || l.file > writer->m->sources.n) return "";
  const char *name = writer->m->sources.at[l.file - 1].name, *slash = strrchr(name, '/');
  return arena_printf(writer->m->arena, "%s:%u", slash ? slash + 1 : name, l.line);
}

char *host_write(Module *m) {
  HostWriter writer = {.m = m, .tiers = module_tiers(m)};
  host_put(&writer, "/* The host program of model ");
  host_comment(&writer, m->model);
  host_put(&writer, ", written by shardc. Kernels are compiled apart; addresses are final. */\n");
  host_put(&writer, "#include \"rt.h\"\n");
  host_kernels(&writer);
  if (host_count_collectives(m))
    host_put(&writer, "\nstatic const rt_collective collectives[%u];\n", host_count_collectives(m));
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (m->fns.at[i]->kind != FN_KERNEL) host_function(&writer, m->fns.at[i]);
  host_tables(&writer);
  return writer.text;
}
