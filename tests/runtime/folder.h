/* A folder of a test group's own, removed after it: cmocka's group setup and teardown. */
#ifndef SHARDC_TESTS_RUNTIME_FOLDER_H
#define SHARDC_TESTS_RUNTIME_FOLDER_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int make_folder(void **state) {
  char *folder = strdup("/tmp/shardrt_XXXXXX");
  *state = mkdtemp(folder);
  return !*state;
}

static int remove_folder(void **state) {
  char command[300];
  snprintf(command, sizeof command, "rm -r '%s'", (char *)*state);
  int r = system(command);
  free(*state);
  return r;
}
#endif
