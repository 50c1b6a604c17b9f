/* The settings of a run that its checkpoints tell: what decides how it is trained. */
#ifndef SHARDC_RT_RUN_SETTINGS_H
#define SHARDC_RT_RUN_SETTINGS_H
#include "runtime/base/json.h"
#include "runtime/rt.h"
#include <stdio.h>

/* As compiled: lines KEY=VALUE in new memory. */
char *rt_run_settings(const rt_program *p);
void rt_write_settings(FILE *file, const char *lines); /* as a JSON object */
char *rt_read_settings(Json *json);                    /* of such an object, in new memory */
/* Names on stderr each setting that was another in the run `then`; how many. */
int rt_tell_settings(const char *then, const char *now);
/* The value of a key, up to the end of its line; NULL: there is none. */
const char *rt_find_setting(const char *lines, const char *key, size_t *n);
/* The next line, cut at its `=`; false: that was all. */
bool rt_next_setting(char **at, char **key, char **value);
uint64_t rt_source_hash(const rt_program *p); /* of the model files */
#endif
