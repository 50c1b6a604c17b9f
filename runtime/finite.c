/* The guard that looks for numbers which are not finite, and names the tensors that are clean. */
#include "checkpoint.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static int64_t bad_in(const Device *d, const rt_tensor *t) {
  const void *data = rt_tensor_data(d, t);
  int64_t n = rt_tensor_count(t), bad = 0;
  if (t->elem == RT_F32)
    for (int64_t i = 0; i < n; i++) bad += !isfinite(((const float *)data)[i]);
  else if (t->elem == RT_BF16 || t->elem == RT_F16 || t->elem == RT_F64)
    for (int64_t i = 0; i < n; i++) bad += !isfinite(rt_elem_get(t->elem, data, i));
  return bad;
}

/* Adds a name to a list; one that is full ends in "..". */
static void append(char *text, size_t n, const char *name, int64_t bad) {
  char piece[RT_NAME + 32];
  size_t k = strlen(text);
  if (k > 2 && text[k - 1] == '.') return;
  if (bad) snprintf(piece, sizeof piece, "%s%s (%lld)", k ? ", " : "", name, (long long)bad);
  else snprintf(piece, sizeof piece, "%s%s", k ? ", " : "", name);
  bool fits = k + strlen(piece) + 6 < n;
  snprintf(text + k, n - k, "%s", fits ? piece : k ? ", .." : "..");
}

int rt_check_finite(const Device *d, unsigned kinds, char *names, size_t nnames, char *clean,
                    size_t nclean) {
  int faulty = 0;
  names[0] = clean[0] = 0;
  for (int i = 0; i < d->program->ntensors; i++) {
    const rt_tensor *t = &d->program->tensors[i];
    if (!(kinds >> t->kind & 1)) continue;
    int64_t bad = bad_in(d, t);
    faulty += bad > 0;
    append(bad ? names : clean, bad ? nnames : nclean, t->name, bad);
  }
  return faulty;
}
