/* The table arch.def by name. Must not: know a machine. */
#include "arch.h"
#include "ir/support/num.h"
#include <string.h>

/* clang-format off */
static const Arch archs[] = {
#define ARCH(name_, words_, as_, ...) {.name = #name_, .words = words_, .as = as_, __VA_ARGS__},
#include "arch.def"
#undef ARCH
};
/* clang-format on */

const Arch *arch_find(const char *name) {
  for (size_t i = 0; i < COUNT_OF(archs); i++)
    if (!strcmp(archs[i].name, name)) return &archs[i];
  return NULL;
}

bool arch_only_planned(const Arch *arch) { return *arch->as != 0; }

double arch_peak(const Arch *arch, const char *precision) {
  const struct {
    const char *name;
    double peak;
  } peaks[] = {{"f32", arch->f32}, {"tf32", arch->tf32}, {"bf16", arch->bf16}, {"f16", arch->f16}};
  for (size_t i = 0; i < COUNT_OF(peaks); i++)
    if (!strcmp(peaks[i].name, precision)) return peaks[i].peak;
  return 0;
}
