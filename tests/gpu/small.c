/* Small kernels for the machine's tests: building the text, launching, reading back. */
#include "small.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const small_head = ".version 7.8\n.target sm_90\n.address_size 64\n"
                               ".extern .shared .align 16 .b8 sm[];\n";
static const char *const open_body =
    "(.param .u64 in_%s, .param .u64 out_%s)\n{\n.reg .pred %%p<10>;\n.reg .b16 %%h<40>;\n.reg "
    ".b32 %%r<60>;\n"
    ".reg .b64 %%d<40>;\n.reg .f32 %%f<40>;\nld.param.u64 %%d0, [in_%s];\nld.param.u64 %%d1, "
    "[out_%s];\n"
    "mov.u32 %%r0, %%tid.x;\nmov.u32 %%r1, %%ctaid.x;\nmov.u32 %%r2, %%ntid.x;\n"
    "mad.lo.s32 %%r3, %%r1, %%r2, %%r0;\nmul.wide.u32 %%d2, %%r3, 4;\nadd.s64 %%d2, %%d2, %%d1;\n"
    "mul.wide.u32 %%d3, %%r0, 4;\nadd.s64 %%d3, %%d3, %%d0;\n";

char *small_text(const char *name, const char *before, const char *body) {
  size_t n = strlen(body) + (before ? strlen(before) : 0) + 2000;
  char *text = malloc(n), *at = text;
  at += sprintf(at, "%s\n.visible .entry %s", before ? before : "", name);
  at += sprintf(at, open_body, name, name, name, name);
  sprintf(at, "%s\nret;\n}\n", body);
  return text;
}

static bool launch(PtxDevice *d, PtxModule *m, const Small *s, uint32_t *out, char *error,
                   int bytes) {
  uint32_t words[IN];
  for (uint32_t i = 0; i < IN; i++) words[i] = 3 * i;
  uint64_t params[2] = {ptx_alloc(d, sizeof words), ptx_alloc(d, 4 * OUT)};
  ptx_write(d, params[0], words, sizeof words);
  PtxLaunch l = {"k", {s->ctas, 1, 1}, {s->threads, 1, 1}, s->shared, params, sizeof params};
  bool ok = ptx_launch(m, &l, error, bytes);
  for (int i = 0; i < OUT; i++)
    if (ptx_unwritten(d, params[1] + 4 * (uint64_t)i, 4) >= 0) out[i] = 0xffffffff;
    else ptx_read(d, &out[i], params[1] + 4 * (uint64_t)i, 4);
  return ok;
}

bool small_run(const Small *s, uint32_t *out, char *error, int error_bytes) {
  char *body = small_text("k", s->before, s->body),
       *text = malloc(strlen(body) + strlen(small_head) + 1);
  strcpy(text, small_head), strcat(text, body);
  PtxOptions options = s->options;
  if (!options.sm) options.sm = 90;
  PtxDevice *d = ptx_device_new(&options);
  PtxModule *m = ptx_parse(d, text, error, error_bytes);
  bool ok = m && launch(d, m, s, out, error, error_bytes);
  ptx_module_free(m), ptx_device_free(d);
  free(text), free(body);
  return ok;
}
