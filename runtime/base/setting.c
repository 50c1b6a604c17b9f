/* Settings by their key: a walk over the program's table, for calls outside of steps. */
#include "setting.h"
#include <string.h>

const char *rt_setting_of(const rt_program *p, const char *key) {
  for (int i = 0; i < p->nsettings; i++)
    if (!strcmp(p->settings[i].key, key)) return p->settings[i].value;
  return NULL;
}
