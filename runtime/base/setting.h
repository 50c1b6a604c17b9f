/* The settings of the model file and of its plan that the compiler left in the program, by key:
   "data.train", "machine.node.gpus"; what it does not carry has the default of
   frontend/settings/settings.def. Must not: know what any of them means. */
#ifndef SHARDC_RT_SETTING_H
#define SHARDC_RT_SETTING_H
#include "runtime/rt.h"

const char *rt_setting_said(const rt_program *program, const char *key); /* NULL if absent */
const char *rt_setting_of(const rt_program *program, const char *key); /* NULL: no default either */
#endif
